"""A provisioner whose machines exist in memory: what each call owes the contract, without hardware in the way."""

import datetime
import threading

import metamorph.provisioner.v1.provisioner_pb2 as pb
import worker
from session import Failed, Put, busy, done, working

TAKES = {"Inspect": 2, "Provision": 10, "Deprovision": 10}
STEPS = {"Inspect": "inspect the machine", "Provision": "write the image", "Deprovision": "remove what was provisioned"}
EFFECTS = {"Inspect": pb.EFFECT_INSPECT, "Provision": pb.EFFECT_WRITE, "Deprovision": pb.EFFECT_WIPE}
RUNNING, ENDED = "Running", ("Succeeded", "Failed", "Cancelled")


def nobody_answers(address):
    return Failed("BmcUnreachable", f"reach the BMC at {address}: nothing answers", "look at the BMC and its network; it is tried again")


class Machine:
    """One machine. It carries out a piece of work once, by its id."""

    def __init__(self):
        self.on, self.system, self.job, self.troubles = False, None, None, set()
        self.before = None

    def settle(self, now):
        job = self.job
        if job and not job["over"] and job["until"] <= now:
            job["over"] = True
            if not job["fails"] and job["leaves"]:
                self.system, self.on = job["leaves"](self.system)

    def begin(self, identity, takes, leaves, now):
        if self.job and self.job["id"] == identity:
            return False
        takes *= 10 if "SLOW" in self.troubles else 1
        fails = "FAILING" in self.troubles
        self.troubles.discard("FAILING")
        self.job = {"id": identity, "begun": now, "until": now + takes, "leaves": leaves, "fails": fails, "over": False}
        return True

    def begin_again(self, identity, takes, now):
        job = self.job
        if not job or job["id"] != identity or job["over"]:
            return False
        self.job = None
        self.begin(identity, takes, job["leaves"], now)
        self.job["fails"] = self.job["fails"] or job["fails"]
        return True

    def standing(self, identity, now):
        job = self.job
        if not job or job["id"] != identity:
            return "unknown", 0, 0
        if job["over"]:
            return ("failed" if job["fails"] else "done"), 0, 0
        left = max(job["until"] - now, 0)
        percent = 100 - min(max(int(left * 100 / max(job["until"] - job["begun"], 0.001)), 1), 100)
        return "running", percent, left


class Memory:
    """The backend."""

    NAME, FORMAT, SCHEMES = "memory-python", 1, []
    CAPABILITIES = {"legacyBoot": True, "secureBoot": True, "provesIdentity": True, "marksDisks": True}

    def __init__(self):
        self.lock = threading.RLock()
        self.machines, self.known, self.told = {}, {}, {}
        names = ["register", "adopt", "release", "powerState", "setPower", "inspect", "provision", "deprovision"]
        self.handlers = {name: (lambda session, name=name: Call(self, session).answer(name)) for name in names}

    def machine(self, address, now):
        """The machine at an address: it is there as soon as somebody looks."""
        with self.lock:
            machine = self.machines.setdefault(address, Machine())
            machine.settle(now)
            return machine

    def forget(self, uid):
        with self.lock:
            self.known.pop(uid, None)
            self.told.pop(uid, None)


class Call:
    """One call of one host."""

    def __init__(self, backend, session):
        self.backend, self.session, self.uid = backend, session, session.host.uid
        self.facts, self.request, self.now = session.facts, session.request, session.now
        self.address = self.facts.get("address", "")
        self.owner = self.facts.get("provisioning_id") or self.uid

    def answer(self, name):
        if not self.session.leads:
            raise Failed("NotLeading", "use the machine: another process leads")
        self.read()
        return (yield from getattr(self, name)())

    # What is remembered.

    def read(self):
        data, revision = self.session.recorded(), self.session.revision
        with self.backend.lock:
            before, ours = self.backend.known.get(self.uid, (0, {}))
            work = ours.get("work")
            # The record of work under way was deleted: who does the work writes it anew.
            if work and work["phase"] == RUNNING and revision < before and data.get("number", 0) <= ours["number"] and data.get("work") != work:
                data = dict(ours)
            else:
                data["number"] = max(data.get("number", 0), ours.get("number", 0))
                self.backend.known[self.uid] = (revision, dict(data))
        self.data = data

    def record(self, intent=False):
        yield from self.session.write(self.data, intent)
        with self.backend.lock:
            self.backend.known[self.uid] = (self.session.revision, dict(self.data))

    # The machine.

    def look(self):
        return self.backend.machine(self.address, self.now)

    def reached(self):
        if not self.address:
            raise Failed("BmcAddressInvalid", "reach the BMC: the host has no address", "set spec.bmc.address", pb.RETRY_AFTER_CHANGE)
        if "SILENT" in self.look().troubles:
            raise nobody_answers(self.address)

    def ready(self):
        self.reached()
        if "FORGOTTEN" in self.look().troubles:
            raise Put(pb.Verdict(registration_needed=pb.RegistrationNeeded(reason="the machine was forgotten")))

    def serial(self):
        return f"memory:{self.address}" + (":another" if "ANOTHER" in self.look().troubles else "")

    def order(self, effect, detail, act):
        def ordered():
            with self.backend.lock:
                machine = self.look()
                if "SILENT" in machine.troubles:
                    raise nobody_answers(self.address)
                if "REFUSING" in machine.troubles:
                    machine.troubles.discard("REFUSING")
                    raise Failed("BmcRefused", f"{detail}: the machine refuses", "it is tried again")
                return act(machine)

        yield from self.session.effect(effect, detail, ordered)

    # Work: recorded, told to the machine once, looked at until it is over, recorded as ended.

    def end(self, phase, failure=None):
        work = self.data.get("work")
        if not work or work["phase"] in ENDED:
            return None
        self.data["work"] = dict(work, phase=phase, ended=self.now, failure=failure)
        return self.data["work"]

    def show(self, work, percent=None):
        def time(at):
            return datetime.datetime.fromtimestamp(int(at), datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")

        status = {"phase": work["phase"], "startTime": time(work["begun"]), "currentStep": STEPS[work["kind"]]}
        status["message"] = work.get("failure") or STEPS[work["kind"]]
        if work.get("ended") is not None:
            status["endTime"] = time(work["ended"])
        if percent is not None:
            status["progress"] = f"0/1 ({percent}%)"
        entry = {"number": work["number"], "id": work["id"], "operation": work["kind"], "status": status}
        if work.get("wish"):
            entry["wish"] = work["wish"]
        yield from self.session.tell(entry, percent is not None)

    def work(self, kind, leaves):
        """Brings the work for this wish one step on; returns when it is done."""
        self.ready()
        wish, restart = self.request.get("wish"), self.request.get("restart", False)
        known = self.data.get("work")
        is_mine = known and known["kind"] == kind and (not wish or not known.get("wish") or known["wish"] == wish)
        if is_mine and known["phase"] == "Succeeded":
            yield from self.show(known)
            return
        if is_mine and known["phase"] == "Failed" and not restart and self.tells(known["id"]):
            raise Failed("HardwareFailed", known["failure"], "it is tried again")
        if is_mine and known["phase"] == RUNNING:
            yield from self.go_on(kind, known, leaves)
        else:
            yield from self.begin(kind, wish, leaves)

    def tells(self, identity):
        with self.backend.lock:
            before, self.backend.told[self.uid] = self.backend.told.get(self.uid), identity
            return before != identity

    def allowed(self, kind):
        """The machine is the host's, its disk is nobody else's, and there is room."""
        found, known = self.serial(), self.data.get("machine")
        if known and known != found:
            raise Failed("AnotherMachine", f"use the machine: it is {found}, and the host's is {known}", "correct spec.bmc.address")
        system = self.look().system
        if system and system[1] and system[1] != self.owner and kind != "Inspect" and self.destroys(kind):
            if self.request.get("overwrite_owner") != system[1]:
                advice = f"to overwrite it, annotate the host with metamorph.metal3.io/overwrite-owner={system[1]}"
                raise Failed("ForeignOwner", f"{STEPS[kind]}: the disk carries the mark of {system[1]}", advice)
        if "BUSY" in self.look().troubles:
            raise Put(busy("the machine was made busy"))

    def destroys(self, kind):
        return kind == "Provision" or kind == "Deprovision" and self.request.get("clean", False)

    def begin(self, kind, wish, leaves):
        self.allowed(kind)
        self.data.setdefault("machine", self.serial())
        ended = self.end("Cancelled")
        number = self.data.get("number", 0) + 1
        self.data["number"] = number
        work = {"number": number, "id": f"{self.uid}/{number}/{self.now:.6f}", "kind": kind, "wish": wish, "begun": self.now, "phase": RUNNING}
        self.data["work"] = work
        yield from self.record(intent=True)
        if ended:
            yield from self.show(ended)
        yield from self.show(work)
        yield from self.give(kind, work, leaves)

    def give(self, kind, work, leaves):
        """Gives the machine its order, whose intent is recorded: a later process repeats it, and the machine carries it out once."""
        takes = TAKES[kind]
        effect = EFFECTS[kind] if kind != "Deprovision" or self.destroys(kind) else pb.EFFECT_POWER
        try:
            yield from self.order(effect, STEPS[kind], lambda machine: machine.begin(work["id"], takes, leaves, self.now))
        except Failed as failed:
            if failed.verdict.failure.cause in ("NotLeading", "BmcUnreachable"):
                raise
            yield from self.fail(str(failed), failed)
        raise Put(working(STEPS[kind], takes, 0))

    def go_on(self, kind, work, leaves):
        standing, percent, left = self.look().standing(work["id"], self.now)
        if standing == "unknown":
            self.allowed(kind)
            yield from self.give(kind, work, leaves)
        if standing == "running" and self.request.get("force_reboot"):
            yield from self.order(pb.EFFECT_POWER, "boot it anew", lambda machine: machine.begin_again(work["id"], TAKES[kind], self.now))
            raise Put(working(STEPS[kind], TAKES[kind], 0, accepted=True))
        if standing == "running":
            yield from self.show(work, percent)
            raise Put(working(STEPS[kind], min(left, 10), percent))
        if standing == "failed":
            text = f"{STEPS[kind]}: the machine says that it has failed"
            yield from self.fail(text, Failed("HardwareFailed", text, "it is tried again"))
        ended = self.end("Succeeded")
        yield from self.record()
        if ended:
            yield from self.show(ended)

    def fail(self, text, failure):
        """Recorded before it is told."""
        ended = self.end("Failed", text)
        yield from self.record()
        if ended:
            yield from self.show(ended)
            self.tells(ended["id"])
        raise failure

    def stop(self):
        """Ends what the machine does of the newest work."""
        work = self.data.get("work") or {}
        standing, _, _ = self.look().standing(work.get("id", ""), self.now)
        if standing == "running":

            def stop(machine):
                machine.job = None
                return True

            yield from self.order(pb.EFFECT_END, "end the work", stop)

    # The calls.

    def register(self):
        self.reached()
        known = self.facts.get("provisioning_id")
        if "registered" not in self.data:
            self.data["registered"] = self.now
            self.data.setdefault("machine", self.serial())
            yield from self.record()
        self.look().troubles.discard("FORGOTTEN")
        return done("registered", {"id": known or f"{self.backend.NAME}-{self.uid}", "powered_on": self.look().on})

    def adopt(self):
        self.ready()
        yield from ()
        return done()

    def release(self):
        force = self.request.get("force", False)
        ended, registered = self.end("Cancelled"), self.data.pop("registered", None)
        if ended or registered is not None:
            yield from self.record()
        if ended:
            yield from self.show(ended)
        try:
            yield from self.stop()
        except Failed as failed:
            if not force or failed.verdict.failure.cause == "NotLeading":
                raise
        if not force:
            self.reached()
        self.backend.forget(self.uid)
        return done()

    def powerState(self):
        self.ready()
        yield from ()
        return done("power", self.look().on)

    def setPower(self):
        self.ready()
        wished = self.request["power"] == "On"
        restarts = not wished and self.facts.get("disable_power_off", False)
        if restarts or self.look().on != wished:

            def switch(machine):
                machine.on = wished or restarts
                return True

            yield from self.order(pb.EFFECT_POWER, "switch it", switch)
        return done("power", wished or restarts)

    def inspect(self):
        yield from self.work("Inspect", None)
        mac = (self.facts.get("boot_mac") or "02:00:00:00:00:01").lower()
        hardware = {
            "cpu": {"arch": "x86_64", "count": 2},
            "ramMebibytes": 4096,
            "nics": [{"name": "eth0", "mac": mac, "pxe": True}],
            "storage": [{"name": "/dev/vda", "serialNumber": f"{self.serial()}-1", "sizeBytes": 64 << 30, "type": "SSD"}],
            "systemVendor": {"manufacturer": "Example", "productName": "Memory", "serialNumber": self.serial()},
        }
        return done("inspected", {"hardware": hardware})

    def provision(self):
        if self.request.get("method", "Disk") != "Disk":
            raise Failed("NotServed", "provision the host: images are written to disks only", "give a disk image", pb.RETRY_AFTER_CHANGE)
        url, owner = self.request["image"].get("url", ""), self.owner
        if not url:
            raise Failed("InvalidRequest", "provision the host: it names no image", "set spec.image.url", pb.RETRY_AFTER_CHANGE)
        yield from self.work("Provision", lambda _: ((url, owner), True))
        return done()

    def deprovision(self):
        clean = self.request.get("clean", False)
        # Its power may never be cut: then it stays on.
        stays_on = self.facts.get("disable_power_off", False)
        # Who gives it back as it is has no claim on it any more.
        yield from self.work("Deprovision", lambda system: (None if clean or not system else (system[0], ""), stays_on))
        return done("deprovisioned", {"wiped": clean, "untouched": False})


class Troubles(worker.rpc.TroubleServiceServicer):
    """Makes machines slow, silent and so on, for `metamorph provisioner check`."""

    def __init__(self, backend):
        self.backend = backend

    def SetCondition(self, request, context):
        name = pb.Condition.Name(request.condition).removeprefix("CONDITION_")
        with self.backend.lock:
            machine = self.backend.machines.setdefault(request.address, Machine())
            if name == "FOREIGN":
                if request.on:
                    machine.before, machine.system = machine.system, ("theirs", "another-owner")
                elif machine.system and machine.system[1] == "another-owner":
                    machine.system = machine.before
            elif request.on:
                machine.troubles.add(name)
            elif name != "FORGOTTEN":
                machine.troubles.discard(name)
        return pb.SetConditionResponse()


if __name__ == "__main__":
    backend = Memory()
    worker.serve(worker.Service(backend, "memory://machine-{n}"), Troubles(backend))
