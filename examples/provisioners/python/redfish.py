"""A provisioner that drives BMCs by Redfish, with sushy: power, inspection by the BMC alone, systems that run from a virtual medium.

It writes no disks, and says so: of images only live ISOs are served. Sessions are not used, so that none is left behind.
"""

import datetime
from urllib.parse import urlsplit

import sushy
import sushy.auth
from sushy import exceptions

import metamorph.provisioner.v1.provisioner_pb2 as pb
import worker
from session import Failed, Put, done, working

STEP = {"Inspect": "read what the BMC lists", "Provision": "boot the medium", "Deprovision": "take the medium out"}

# Parts that an inspection here does not list, or not completely: no later step takes its facts for all that there is.
NOT_LISTED = ["processors", "memory", "disks", "interfaces", "firmware"]


def endpoint(address):
    """The BMC's URL and the path of the system behind it."""
    parts = urlsplit(address)
    scheme = "http" if parts.scheme.endswith("+http") else "https"
    if not parts.hostname:
        raise Failed("BmcAddressInvalid", "reach the BMC: its address names no host", "correct spec.bmc.address", pb.RETRY_AFTER_CHANGE)
    return f"{scheme}://{parts.netloc}", parts.path


class Redfish:
    """The backend. It remembers nothing: all that it must know is in the record."""

    NAME, FORMAT = "redfish-python", 1
    SCHEMES = ["redfish", "redfish+http", "redfish+https", "redfish-virtualmedia", "redfish-virtualmedia+http", "redfish-virtualmedia+https"]
    CAPABILITIES = {"liveIso": True, "fastInspection": True, "provesIdentity": True, "imageFormats": ["live-iso"], "imageSchemes": ["http", "https"]}

    def __init__(self):
        names = ["register", "adopt", "release", "powerState", "setPower", "inspect", "provision", "deprovision", "liveFindings"]
        self.handlers = {name: (lambda session, name=name: Call(session).answer(name)) for name in names}

    def forget(self, uid):
        pass


class Call:
    """One call of one host."""

    def __init__(self, session):
        self.session, self.request, self.now = session, session.request, session.now
        self.data = session.recorded()

    def answer(self, name):
        if not self.session.leads:
            raise Failed("NotLeading", "use the machine: another process leads")
        try:
            return (yield from getattr(self, name)())
        except exceptions.AccessError:
            raise Failed("BmcCredentialsRefused", "sign in to the BMC: it refuses user or password", "correct the Secret that spec.bmc.credentialsName names") from None
        except exceptions.ConnectionError:
            raise Failed("BmcUnreachable", "reach the BMC: nothing answers", "see whether the BMC answers, and the way to it") from None
        except exceptions.ServerSideError:
            raise Failed("BmcBusy", f"ask the BMC to {name}: it puts requests off", "wait, it is tried again") from None
        except exceptions.SushyError as error:
            raise Failed("BmcRefused", f"ask the BMC to {name}: {type(error).__name__}", "see the BMC's own log") from None

    # The machine.

    def system(self):
        """The system, if it is the one that the host is known to be."""
        bmc = self.session.bmc
        if bmc is None:
            raise Failed("BmcCredentialsRefused", "reach the BMC: the host has no credentials", "set spec.bmc.credentialsName", pb.RETRY_AFTER_CHANGE)
        url, path = endpoint(bmc.address)
        auth = sushy.auth.BasicAuth(bmc.username, bmc.password)
        root = sushy.Sushy(url, auth=auth, verify=not bmc.disable_certificate_verification, server_side_retries=0, read_timeout=30, connect_timeout=10)
        self.root = root
        system = root.get_system(path) if path.strip("/") else root.get_system_collection().get_members()[0]
        known = self.data.get("machine")
        if known and known != system.uuid:
            message = f"use the machine: its UUID is {system.uuid}, and the host's is {known}"
            raise Failed("AnotherMachine", message, "correct spec.bmc.address or the cables")
        return system

    def drive(self, system):
        """The virtual drive for CDs."""
        for manager in system.managers:
            for drive in manager.virtual_media.get_members():
                if sushy.VIRTUAL_MEDIA_CD in (drive.media_types or []):
                    return drive
        raise Failed("BmcRefused", "find a drive for the medium: the BMC has none for CDs", "see the BMC's licence", pb.RETRY_AFTER_CHANGE)

    def switch(self, system, wanted, reset):
        if system.power_state != wanted:
            yield from self.session.still_wanted()
            yield from self.session.effect(pb.EFFECT_POWER, "switch it", lambda: system.reset_system(reset) is None)

    # Work.

    def show(self, work):
        def time(at):
            return datetime.datetime.fromtimestamp(int(at), datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")

        step = STEP[work["kind"]]
        status = {"phase": work["phase"], "startTime": time(work["begun"]), "currentStep": step, "message": step}
        if "ended" in work:
            status["endTime"] = time(work["ended"])
        entry = {"number": work["number"], "id": work["id"], "operation": work["kind"], "wish": work["wish"], "status": status}
        yield from self.session.tell({name: value for name, value in entry.items() if value is not None})

    def begin(self, kind):
        """The work for this wish: known from the record, or begun and recorded as an intent."""
        work, wish = self.data.get("work"), self.request.get("wish")
        if work and work["kind"] == kind and wish in (work["wish"], None):
            if not (work["phase"] == "Succeeded" and self.request.get("restart")):
                return work
        number = self.data.get("number", 0) + 1
        identity = f"{self.session.host.uid}/{number}/{self.now:.6f}"
        work = {"number": number, "id": identity, "kind": kind, "wish": wish, "begun": self.now, "phase": "Running"}
        self.data.update(number=number, work=work)
        yield from self.session.write(self.data, intent=True)
        yield from self.show(work)
        return work

    def end(self, work, phase="Succeeded"):
        if work["phase"] == "Running":
            work = dict(work, phase=phase, ended=self.now)
            self.data["work"] = work
            yield from self.session.write(self.data, intent=False)
        yield from self.show(work)

    # The calls.

    def register(self):
        system = self.system()
        if not system.uuid:
            raise Failed("MachineUnknown", "register the machine: its BMC shows no UUID of it", "see the BMC's firmware")
        if "machine" not in self.data:
            self.data["machine"] = system.uuid
            yield from self.session.write(self.data, intent=False)
        identity = self.session.facts.get("provisioning_id") or f"{Redfish.NAME}-{self.session.host.uid}"
        return done("registered", {"id": identity, "powered_on": system.power_state == sushy.POWER_STATE_ON})

    def adopt(self):
        self.system()
        yield from ()
        return done()

    def release(self):
        work = self.data.get("work")
        if work and work["phase"] == "Running":
            yield from self.end(work, "Cancelled")
        return done()

    def powerState(self):
        yield from ()
        return done("power", self.system().power_state == sushy.POWER_STATE_ON)

    def setPower(self):
        system, on = self.system(), self.request["power"] == "On"
        if on:
            yield from self.switch(system, sushy.POWER_STATE_ON, sushy.RESET_ON)
            return done("power", True)
        if self.session.facts.get("disable_power_off"):
            yield from self.session.still_wanted()
            yield from self.session.effect(pb.EFFECT_POWER, "restart it", lambda: system.reset_system(sushy.RESET_FORCE_RESTART) is None)
            return done("power", True)
        gently = self.request["power"] == "SoftOff" and not self.request.get("restart")
        yield from self.switch(system, sushy.POWER_STATE_OFF, sushy.RESET_GRACEFUL_SHUTDOWN if gently else sushy.RESET_FORCE_OFF)
        system.refresh(force=True)
        if system.power_state != sushy.POWER_STATE_OFF:
            raise Put(working("switch it off", 5))
        return done("power", False)

    def inspect(self):
        system = self.system()
        work = yield from self.begin("Inspect")
        vendor = {"manufacturer": system.manufacturer, "productName": system.model, "serialNumber": system.serial_number}
        hardware = {"systemVendor": {name: value for name, value in vendor.items() if value}}
        if system.memory_summary and system.memory_summary.size_gib:
            hardware["ramMebibytes"] = int(system.memory_summary.size_gib * 1024)
        nics = [nic for nic in system.ethernet_interfaces.get_members() if nic.mac_address]
        hardware["nics"] = [{"name": nic.identity, "mac": nic.mac_address.lower()} for nic in nics]
        yield from self.end(work)
        return done("inspected", {"hardware": hardware, "not_listed": NOT_LISTED})

    def provision(self):
        url = self.request["image"].get("url", "")
        if self.request.get("method") != "LiveIso":
            raise Failed("NotServed", "provision the host: no disks are written here", "set spec.image.format to live-iso", pb.RETRY_AFTER_CHANGE)
        system = self.system()
        work = yield from self.begin("Provision")
        if work["phase"] == "Succeeded":
            yield from self.end(work)
            return done()
        drive = self.drive(system)
        if not (drive.inserted and drive.image == url):
            if drive.inserted:
                yield from self.session.effect(pb.EFFECT_MEDIA, "take another medium out", lambda: drive.eject_media() is None)
            yield from self.session.effect(pb.EFFECT_MEDIA, "put the medium in", lambda: drive.insert_media(url) is None)
        boot = system.boot
        is_set = boot.target == sushy.BOOT_SOURCE_TARGET_CD and boot.enabled == sushy.BOOT_SOURCE_ENABLED_CONTINUOUS
        # What is set shows that a boot was meant, and not that it has happened: that stands in the record.
        if not work.get("booted") or not is_set or system.power_state != sushy.POWER_STATE_ON:
            yield from self.session.still_wanted()
            yield from self.session.effect(pb.EFFECT_WRITE, STEP["Provision"], lambda: self.boot(system))
            yield from self.note(work, "booted")
            raise Put(working(STEP["Provision"], 5))
        yield from self.end(work)
        return done()

    def note(self, work, what):
        """Records that a step of the work has happened."""
        work[what] = True
        self.data["work"] = work
        yield from self.session.write(self.data, intent=False)

    def boot(self, system):
        system.set_system_boot_options(sushy.BOOT_SOURCE_TARGET_CD, sushy.BOOT_SOURCE_ENABLED_CONTINUOUS)
        is_on = system.power_state == sushy.POWER_STATE_ON
        system.reset_system(sushy.RESET_FORCE_RESTART if is_on else sushy.RESET_ON)
        return True

    def deprovision(self):
        system = self.system()
        work = yield from self.begin("Deprovision")
        if work["phase"] != "Succeeded":
            stays_on = self.session.facts.get("disable_power_off")
            if not stays_on:
                yield from self.switch(system, sushy.POWER_STATE_OFF, sushy.RESET_FORCE_OFF)
            drive = self.drive(system)
            if drive.inserted:
                yield from self.session.effect(pb.EFFECT_MEDIA, "take the medium out", lambda: drive.eject_media() is None)
            if system.boot.enabled != sushy.BOOT_SOURCE_ENABLED_DISABLED:
                off = {"enabled": sushy.BOOT_SOURCE_ENABLED_DISABLED}
                yield from self.session.effect(pb.EFFECT_POWER, "boot from disk again", lambda: system.set_system_boot_options(**off) is None)
            if stays_on and not work.get("restarted"):
                # Its power may never be cut: the system is ended by a restart.
                if system.power_state == sushy.POWER_STATE_ON:
                    yield from self.session.still_wanted()
                    yield from self.session.effect(pb.EFFECT_POWER, "restart it", lambda: system.reset_system(sushy.RESET_FORCE_RESTART) is None)
                yield from self.note(work, "restarted")
        yield from self.end(work)
        return done("deprovisioned", {"wiped": False, "untouched": False})

    def liveFindings(self):
        work = self.data.get("work") or {}
        missing = work.get("kind") == "Provision" and not self.drive(self.system()).inserted
        finding = {"level": "Warning", "component": "", "message": "the medium of the live system is not in its drive any more"}
        yield from ()
        return done("findings", [finding] if missing else [])



if __name__ == "__main__":
    worker.serve(worker.Service(Redfish()))
