"""A provisioner of storage volumes: each is a file of its size, in a folder of its name, below VOLUMES_FOLDER.

Beside the data lies volume.json, which says whose it is: the id that was recorded before it was made, and the uid of the object that it was made for.
Nothing is grown, erased or removed before both have been compared. Writes of volume.json are atomic, so a volume is there with its identity or not at all.

Large work is cut into steps: a call does one, of at most VOLUMES_STEP_MEBIBYTES, and answers how far it is. A killed worker, server or machine
goes on from what lies on the disk and what is recorded.
"""

import json
import os
import re
import shutil
import sys
import threading
import uuid
from pathlib import Path

import metamorph.provisioner.v1.provisioner_pb2 as pb
import worker
from session import Failed, Put, busy, done, working

MEBI = 1 << 20
ID = re.compile(r"files-[0-9a-z]{1,64}")
# What a folder of volumes has, and an empty mount point has not.
MARKER = ".volumes"
NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
EFFECTS = {"make": pb.EFFECT_WRITE, "grow": pb.EFFECT_CONFIGURE, "remove": pb.EFFECT_WIPE}
STEPS = {"make": "make the volume", "grow": "grow the volume", "remove": "erase the volume"}


def held(cause, message, advice):
    """Nothing is done until somebody has put it right."""
    return Failed(cause, message, advice, pb.RETRY_HELD)


def sync(folder):
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Files:
    """The backend."""

    NAME, KIND, FORMAT, SCHEMES = "files", "volume", 1, []
    CAPABILITIES = {"grow": True}

    def __init__(self, root, step):
        self.root, self.step = root, step
        self.lock = threading.RLock()
        self.troubles = {}
        self.handlers = {name: (lambda session, name=name: Call(self, session, name).answer()) for name in EFFECTS}

    def folder(self, namespace, name):
        """Where the volume of an object lies. What names it comes from outside."""
        for part in (namespace, name):
            if not NAME.fullmatch(part):
                raise Failed("InvalidRequest", f"find the volume: {part[:64]!r} is no name", "give it another name", pb.RETRY_AFTER_CHANGE)
        return self.root / namespace / name

    def identity(self, folder):
        """What lies there says of itself; None if nothing does."""
        try:
            return json.loads((folder / "volume.json").read_text())
        except FileNotFoundError:
            return None

    def put(self, folder, identity):
        """Replaces volume.json as a whole."""
        new = folder / ".volume.json"
        with open(new, "w", encoding="utf-8") as file:
            json.dump(identity, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, folder / "volume.json")
        sync(folder)

    def trouble(self, name, what, take=False):
        with self.lock:
            troubles = self.troubles.get(name, set())
            found = what in troubles
            if found and take:
                troubles.discard(what)
            return found

    def forget(self, uid):
        """Nothing is kept of a volume but what lies there and what is recorded."""


class Call:
    """One call of one volume."""

    def __init__(self, backend, session, name):
        self.backend, self.session, self.call = backend, session, name
        self.owner, self.name = session.host.uid, session.host.name
        self.wanted = session.request.get("size_mebibytes", 0)
        self.folder = backend.folder(session.host.namespace, self.name)

    def answer(self):
        if not self.session.leads:
            raise Failed("NotLeading", f"{STEPS[self.call]}: another process leads")
        self.data = self.session.recorded()
        if not ID.fullmatch(self.data.get("id", f"files-{0:032x}")) or not isinstance(self.data.get("size", 1), int):
            message = f"{STEPS[self.call]}: the record was edited: its id or size is none that this program records"
            raise held("RecordUnreadable", message, "put the record back as it was")
        if self.backend.trouble(self.name, "SILENT") or not (self.backend.root / MARKER).is_file():
            message = f"{STEPS[self.call]}: the folder of volumes is not there, or has no file {MARKER}"
            raise Failed("ProvisionerUnavailable", message, "mount it; it is tried again")
        found = self.backend.identity(self.folder)
        try:
            return (yield from (self.remove(found) if self.call == "remove" else self.bring(found)))
        except OSError as error:
            message = f"{STEPS[self.call]}: {error.strerror or error}"
            raise Failed("HardwareFailed", message, "see the disk that the volumes lie on; it is tried again") from error

    # Which volume it is.

    def proved(self, found):
        """What lies there is this object's volume, and the one that is recorded."""
        if found["owner"] != self.owner:
            message = f"{STEPS[self.call]}: what lies there is the volume of the object {found['owner']}"
            raise held("ForeignOwner", message, "give this one another name, or move that one away")
        if self.data.get("id", found["id"]) != found["id"]:
            message = f"{STEPS[self.call]}: what lies there is {found['id']}, and {self.data['id']} is recorded"
            raise held("AnotherMachine", message, "put the volume back, or move that one away")

    def record(self, intent=False, **changes):
        # Members of a later version stay.
        self.data.update(changes)
        yield from self.session.write(self.data, intent)

    # Making and growing.

    def bring(self, found):
        if found is None:
            if self.data.get("state") in ("made", "growing", "removing"):
                message = f"{STEPS[self.call]}: {self.data['id']} is gone, and no empty one is made in its place"
                raise held("HardwareFailed", message, "put the volume back, or delete the object")
            if self.call == "grow":
                raise held("InvalidRequest", "grow the volume: it was never made", "report it")
            return (yield from self.make())
        self.proved(found)
        if found["state"] == "removing":
            raise held("InvalidRequest", f"{STEPS[self.call]}: it is being removed", "delete the object")
        if "id" not in self.data:
            # The record was lost; what lies there says who it is.
            yield from self.record(id=found["id"], state=found["state"], size=found["size"])
        is_larger = self.call == "grow" and self.wanted > found["size"]
        if found["state"] == "made" and is_larger:
            return (yield from self.grow(found))
        if found["state"] != "made":
            return (yield from self.fill(found))
        if self.data.get("state") != "made" or self.data.get("size") != found["size"]:
            yield from self.record(state="made", size=found["size"])
        return done("volume", {"id": found["id"], "size_mebibytes": found["size"]})

    def make(self):
        if self.data.get("state") != "making":
            self.has_room()
            yield from self.record(True, id=f"{Files.NAME}-{uuid.uuid4().hex}", state="making", size=self.wanted)
        identity = {"id": self.data["id"], "owner": self.owner, "size": self.data["size"], "state": "making"}

        def lay_down():
            with self.backend.lock:
                if self.backend.identity(self.folder) is not None:
                    return False
                # Under another name first: it is there as a whole, or not.
                new = self.folder.with_name(f".{identity['id']}")
                shutil.rmtree(new, ignore_errors=True)
                new.mkdir(parents=True)
                (new / "data").touch()
                self.backend.put(new, identity)
                os.rename(new, self.folder)
                sync(self.folder.parent)
                return True

        yield from self.order(lay_down)
        raise Put(working(STEPS["make"], 0, 0))

    def grow(self, found):
        if self.data.get("state") != "growing":
            self.has_room()
            yield from self.record(True, id=found["id"], state="growing", size=self.wanted)
        identity = dict(found, size=self.data["size"], state="growing")

        def begin():
            with self.backend.lock:
                now = self.backend.identity(self.folder)
                if now != found:
                    return False
                self.backend.put(self.folder, identity)
                return True

        yield from self.order(begin)
        raise Put(working(STEPS["grow"], 0, 0))

    def fill(self, found):
        """One step of giving the file the size that it is to have: real blocks, so that the space is its own."""
        self.fails()
        yield from self.session.still_wanted()
        step, whole = self.step(), found["size"] * MEBI
        with self.backend.lock:
            path = self.folder / "data"
            size = path.stat().st_size
            if size < whole:
                with open(path, "r+b") as file:
                    os.posix_fallocate(file.fileno(), size, min(step, whole - size))
                    os.fsync(file.fileno())
                size = path.stat().st_size
            if size < whole:
                raise Put(working(STEPS[self.call], 0, size * 100 // whole))
            now = self.backend.identity(self.folder)
            if now == found:
                self.backend.put(self.folder, dict(found, state="made"))
        yield from self.record(state="made", size=found["size"])
        return done("volume", {"id": found["id"], "size_mebibytes": found["size"]})

    # Removing.

    def remove(self, found):
        if found is None:
            if self.data.get("id") and self.data.get("state") == "removing":
                # Killed when it had been moved away, and before its blocks were given back.
                shutil.rmtree(self.folder.with_name(f".{self.data['id']}"), ignore_errors=True)
            if self.data.get("id") and self.data.get("state") != "removed":
                yield from self.record(state="removed")
            return done()
        if "id" not in self.data and found["owner"] != self.owner and not self.session.facts.get("id"):
            # None was made for this object; another's is not its business.
            return done()
        self.proved(found)
        if found["state"] != "removing":
            if self.data.get("state") != "removing":
                self.has_room()
                yield from self.record(True, id=found["id"], state="removing", size=found["size"])

            def begin():
                with self.backend.lock:
                    if self.backend.identity(self.folder) != found:
                        return False
                    self.backend.put(self.folder, dict(found, state="removing", erased=0))
                    return True

            yield from self.order(begin)
            raise Put(working(STEPS["remove"], 0, 0))
        return (yield from self.erase(found))

    def erase(self, found):
        """One step of writing zeros over the content; then the volume is taken away."""
        self.fails()
        if "id" not in self.data:
            yield from self.record(id=found["id"], state="removing", size=found["size"])
        yield from self.session.still_wanted()
        with self.backend.lock:
            path = self.folder / "data"
            now = self.backend.identity(self.folder)
            size = path.stat().st_size if path.exists() else 0
            if now and now["id"] == found["id"] and now["erased"] < size:
                count = min(self.step(), size - now["erased"])
                with open(path, "r+b") as file:
                    file.seek(now["erased"])
                    for _ in range(0, count, MEBI):
                        file.write(bytes(min(MEBI, count - (file.tell() - now["erased"]))))
                    file.flush()
                    os.fsync(file.fileno())
                now["erased"] += count
                self.backend.put(self.folder, now)
                if now["erased"] < size:
                    raise Put(working(STEPS["remove"], 0, now["erased"] * 100 // size))
            if now and now["id"] == found["id"]:
                # Its identity goes last, with the folder.
                gone = self.folder.with_name(f".{found['id']}")
                os.rename(self.folder, gone)
                sync(self.folder.parent)
                shutil.rmtree(gone)
        yield from self.record(state="removed")
        return done()

    # What every order has.

    def order(self, act):
        def ordered():
            if self.backend.trouble(self.name, "REFUSING", take=True):
                raise Failed("HardwareFailed", f"{STEPS[self.call]}: it was refused", "it is tried again")
            return act()

        yield from self.session.effect(EFFECTS[self.call], f"{STEPS[self.call]} {self.name}", ordered)

    def has_room(self):
        if self.backend.trouble(self.name, "BUSY"):
            raise Put(busy("the disk of the volumes is busy"))

    def fails(self):
        if self.backend.trouble(self.name, "FAILING", take=True):
            raise Failed("HardwareFailed", f"{STEPS[self.call]}: the disk has failed", "it is tried again")

    def step(self):
        return max(self.backend.step // (10 if self.backend.trouble(self.name, "SLOW") else 1), 4096)


class Troubles(worker.rpc.TroubleServiceServicer):
    """Makes volumes slow, another's and so on, for `volumes check`: by name, in the namespace `check`."""

    def __init__(self, backend):
        self.backend, self.before = backend, {}

    def SetCondition(self, request, context):
        name, condition = request.address, pb.Condition.Name(request.condition).removeprefix("CONDITION_")
        if condition == "FORGOTTEN":
            context.abort(worker.grpc.StatusCode.UNIMPLEMENTED, "a volume is known by what lies there")
        with self.backend.lock:
            if condition in ("FOREIGN", "ANOTHER"):
                self.replace(self.backend.folder("check", name), condition, request.on)
            elif request.on:
                self.backend.troubles.setdefault(name, set()).add(condition)
            else:
                self.backend.troubles.get(name, set()).discard(condition)
        return pb.SetConditionResponse()

    def replace(self, folder, condition, on):
        """Lays another's volume in the place of this one, or takes it away again."""
        found = self.backend.identity(folder)
        if on:
            self.before[folder] = found
            owner = {"owner": "another-owner"} if condition == "FOREIGN" else {}
            other = {"id": "files-another", "owner": "another-owner", "size": 1, "state": "made"}
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "data").touch()
            self.backend.put(folder, dict(found, id="files-another", **owner) if found else other)
        elif found and found["id"] == "files-another":
            before = self.before.pop(folder, None)
            if before:
                self.backend.put(folder, before)
            else:
                shutil.rmtree(folder)


if __name__ == "__main__":
    ROOT = os.environ.get("VOLUMES_FOLDER", "")
    if not os.path.isabs(ROOT) or not os.path.isdir(ROOT):
        sys.exit("VOLUMES_FOLDER names no folder: set it to the whole path of one")
    if not os.path.isfile(os.path.join(ROOT, MARKER)):
        sys.exit(f"VOLUMES_FOLDER has no file {MARKER}: make an empty one where the volumes are to lie, on what is mounted there")
    files = Files(Path(ROOT), int(os.environ.get("VOLUMES_STEP_MEBIBYTES", "64")) * MEBI)
    worker.serve(worker.Service(files, "volume-{n}"), Troubles(files))
