package main

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync"
	"time"

	pb "example.com/memory/pb"
)

// What the provisioner is called, and the version of its records.
const (
	Name   = "memory-go"
	Format = 1
)

type kind struct {
	name, step string
	takes      float64
	effect     pb.Effect
}

var (
	inspects      = kind{"Inspect", "inspect the machine", 2, pb.Effect_EFFECT_INSPECT}
	provisions    = kind{"Provision", "write the image", 10, pb.Effect_EFFECT_WRITE}
	deprovisions  = kind{"Deprovision", "remove what was provisioned", 10, pb.Effect_EFFECT_WIPE}
	capabilities  = `{"legacyBoot": true, "secureBoot": true, "provesIdentity": true, "marksDisks": true}`
	checkMachines = "memory://machine-{n}"
)

// known is what this process has recorded of a host; all of it may be lost.
type known struct {
	revision uint64
	data     Document
}

// Memory is the backend.
type Memory struct {
	lock     sync.Mutex
	machines map[string]*Machine
	known    map[string]known
	told     map[string]string
}

func newMemory() *Memory {
	return &Memory{machines: map[string]*Machine{}, known: map[string]known{}, told: map[string]string{}}
}

// machine is there as soon as somebody looks. The lock is held.
func (memory *Memory) machine(address string) *Machine {
	machine := memory.machines[address]
	if machine == nil {
		machine = &Machine{troubles: map[pb.Condition]bool{}}
		memory.machines[address] = machine
	}
	return machine
}

func (memory *Memory) forget(uid string) {
	memory.lock.Lock()
	defer memory.lock.Unlock()
	delete(memory.known, uid)
	delete(memory.told, uid)
}

// Call is one call of one host.
type Call struct {
	*Session
	memory              *Memory
	uid, address, owner string
	data                Document
}

type handler func(*Call) (*pb.Verdict, error)

var handlers = map[string]handler{
	"register":    (*Call).register,
	"adopt":       func(call *Call) (*pb.Verdict, error) { return Done("done", nil), call.ready() },
	"release":     (*Call).release,
	"powerState":  func(call *Call) (*pb.Verdict, error) { return Done("power", call.look().on), call.ready() },
	"setPower":    (*Call).setPower,
	"inspect":     (*Call).inspect,
	"provision":   (*Call).provision,
	"deprovision": (*Call).deprovision,
}

func (memory *Memory) answer(session *Session) (*pb.Verdict, error) {
	handle := handlers[session.call.Name]
	if handle == nil || session.call.Version > contractVersion {
		why := session.call.Name + ": this provisioner does not serve it"
		return nil, Failed("NotServed", why, "choose another one", pb.Retry_RETRY_AFTER_CHANGE)
	}
	if !session.leads {
		return nil, Failed("NotLeading", "use the machine: another process leads", "", pb.Retry_RETRY_LATER)
	}
	call := &Call{Session: session, memory: memory, uid: session.call.Host.GetUid(), address: session.facts.Text("address")}
	call.owner = session.facts.Text("provisioning_id")
	if call.owner == "" {
		call.owner = call.uid
	}
	if err := call.read(); err != nil {
		return nil, err
	}
	return handle(call)
}

// What is remembered.

func (call *Call) read() error {
	data, err := call.Recorded()
	if err != nil {
		return err
	}
	call.memory.lock.Lock()
	defer call.memory.lock.Unlock()
	ours := call.memory.known[call.uid]
	work := ours.data.Part("work")
	if work != nil && work.Text("phase") == "Running" && call.revision < ours.revision &&
		data.Number("number") <= ours.data.Number("number") && !reflect.DeepEqual(data["work"], ours.data["work"]) {
		// The record of work under way was deleted: who does the work writes it anew.
		call.data = maps.Clone(ours.data)
		return nil
	}
	data["number"] = max(data.Number("number"), ours.data.Number("number"))
	call.memory.known[call.uid] = known{call.revision, maps.Clone(data)}
	call.data = data
	return nil
}

func (call *Call) record(purpose pb.Purpose) error {
	if err := call.Write(call.data, purpose); err != nil {
		return err
	}
	call.memory.lock.Lock()
	defer call.memory.lock.Unlock()
	call.memory.known[call.uid] = known{call.revision, maps.Clone(call.data)}
	return nil
}

// The machine.

// look is a copy of the machine as it is now.
func (call *Call) look() Machine {
	call.memory.lock.Lock()
	defer call.memory.lock.Unlock()
	machine := call.memory.machine(call.address)
	machine.settle(call.now)
	seen := *machine
	seen.troubles = maps.Clone(machine.troubles)
	return seen
}

func nobodyAnswers(address string) error {
	why := "reach the BMC at " + address + ": nothing answers"
	return Failed("BmcUnreachable", why, "look at the BMC and its network; it is tried again", pb.Retry_RETRY_LATER)
}

func (call *Call) reached() error {
	if call.address == "" {
		why := "reach the BMC: the host has no address"
		return Failed("BmcAddressInvalid", why, "set spec.bmc.address", pb.Retry_RETRY_AFTER_CHANGE)
	}
	if call.look().troubles[pb.Condition_CONDITION_SILENT] {
		return nobodyAnswers(call.address)
	}
	return nil
}

func (call *Call) ready() error {
	if err := call.reached(); err != nil {
		return err
	}
	if call.look().troubles[pb.Condition_CONDITION_FORGOTTEN] {
		needed := &pb.RegistrationNeeded{Reason: "the machine was forgotten"}
		return Ended{&pb.Verdict{Verdict: &pb.Verdict_RegistrationNeeded{RegistrationNeeded: needed}}}
	}
	return nil
}

func (call *Call) serial() string {
	if call.look().troubles[pb.Condition_CONDITION_ANOTHER] {
		return "memory:" + call.address + ":another"
	}
	return "memory:" + call.address
}

func (call *Call) order(effect pb.Effect, detail string, act func(*Machine) bool) error {
	return call.Effect(effect, detail, func() (bool, error) {
		call.memory.lock.Lock()
		defer call.memory.lock.Unlock()
		machine := call.memory.machine(call.address)
		machine.settle(call.now)
		if machine.troubles[pb.Condition_CONDITION_SILENT] {
			return false, nobodyAnswers(call.address)
		}
		if machine.troubles[pb.Condition_CONDITION_REFUSING] {
			delete(machine.troubles, pb.Condition_CONDITION_REFUSING)
			return false, Failed("BmcRefused", detail+": the machine refuses", "it is tried again", pb.Retry_RETRY_LATER)
		}
		return act(machine), nil
	})
}

// Work: recorded, told to the machine once, looked at until it is over, recorded as ended.

type leaves func(*System) (*System, bool)

// end ends the work under way; nil if there is none. It is not recorded yet.
func (call *Call) end(phase, failure string) Document {
	work := call.data.Part("work")
	if work == nil || work.Text("phase") != "Running" {
		return nil
	}
	work = maps.Clone(work)
	work["phase"], work["ended"], work["failure"] = phase, call.now, failure
	call.data["work"] = map[string]any(work)
	return work
}

func (call *Call) show(work Document, percent int) {
	if work == nil {
		return
	}
	at := func(name string) string { return time.Unix(int64(work.Number(name)), 0).UTC().Format(time.RFC3339) }
	message := work.Text("failure")
	if message == "" {
		message = work.Text("step")
	}
	status := Document{"phase": work.Text("phase"), "startTime": at("begun"), "currentStep": work.Text("step"), "message": message}
	if work.Number("ended") > 0 {
		status["endTime"] = at("ended")
	}
	if percent >= 0 {
		status["progress"] = fmt.Sprintf("0/1 (%d%%)", percent)
	}
	entry := Document{"number": work["number"], "id": work.Text("id"), "operation": work.Text("kind"), "status": status}
	if wish := work.Text("wish"); wish != "" {
		entry["wish"] = wish
	}
	call.Tell(entry, percent >= 0)
}

// work brings the work for this wish one step on; nil when it is done.
func (call *Call) work(kind kind, leaves leaves) error {
	if err := call.ready(); err != nil {
		return err
	}
	wish := call.request.Text("wish")
	work := call.data.Part("work")
	isMine := work != nil && work.Text("kind") == kind.name && (wish == "" || work.Text("wish") == "" || work.Text("wish") == wish)
	if !isMine {
		return call.begin(kind, wish, leaves)
	}
	switch work.Text("phase") {
	case "Succeeded":
		call.show(work, -1)
		return nil
	case "Running":
		return call.goOn(kind, work, leaves)
	case "Failed":
		if !call.request.Is("restart") && call.tells(work.Text("id")) {
			return Failed("HardwareFailed", work.Text("failure"), "it is tried again", pb.Retry_RETRY_LATER)
		}
	}
	return call.begin(kind, wish, leaves)
}

// tells says whether the host is told of the failure of this work for the first time.
func (call *Call) tells(id string) bool {
	call.memory.lock.Lock()
	defer call.memory.lock.Unlock()
	before := call.memory.told[call.uid]
	call.memory.told[call.uid] = id
	return before != id
}

func (call *Call) destroys(kind kind) bool {
	return kind.name == "Provision" || kind.name == "Deprovision" && call.request.Is("clean")
}

// allowed: the machine is the host's, its disk is nobody else's, and there is room.
func (call *Call) allowed(kind kind) error {
	found, recorded := call.serial(), call.data.Text("machine")
	if recorded != "" && recorded != found {
		why := fmt.Sprintf("use the machine: it is %s, and the host's is %s", found, recorded)
		return Failed("AnotherMachine", why, "correct spec.bmc.address", pb.Retry_RETRY_LATER)
	}
	machine := call.look()
	foreign := machine.system != nil && machine.system.owner != "" && machine.system.owner != call.owner
	if foreign && call.destroys(kind) && call.request.Text("overwrite_owner") != machine.system.owner {
		why := kind.step + ": the disk carries the mark of " + machine.system.owner
		advice := "to overwrite it, annotate the host with metamorph.metal3.io/overwrite-owner=" + machine.system.owner
		return Failed("ForeignOwner", why, advice, pb.Retry_RETRY_LATER)
	}
	if machine.troubles[pb.Condition_CONDITION_BUSY] {
		return Busy("the machine was made busy")
	}
	return nil
}

func (call *Call) begin(kind kind, wish string, leaves leaves) error {
	if err := call.allowed(kind); err != nil {
		return err
	}
	if call.data.Text("machine") == "" {
		call.data["machine"] = call.serial()
	}
	ended := call.end("Cancelled", "")
	number := call.data.Number("number") + 1
	id := fmt.Sprintf("%s/%.0f/%.6f", call.uid, number, call.now)
	work := Document{"number": number, "id": id, "kind": kind.name, "step": kind.step, "wish": wish, "begun": call.now, "phase": "Running"}
	call.data["number"], call.data["work"] = number, map[string]any(work)
	if err := call.record(pb.Purpose_PURPOSE_INTENT); err != nil {
		return err
	}
	call.show(ended, -1)
	call.show(work, -1)
	return call.give(kind, work, leaves)
}

// give gives the machine its order, whose intent is recorded: a later process repeats it, and the machine carries it out once.
func (call *Call) give(kind kind, work Document, leaves leaves) error {
	effect := kind.effect
	if kind.name == "Deprovision" && !call.destroys(kind) {
		effect = pb.Effect_EFFECT_POWER
	}
	err := call.order(effect, kind.step, func(machine *Machine) bool {
		return machine.begin(work.Text("id"), kind.takes, leaves, call.now)
	})
	if ended, ok := err.(Ended); ok && ended.Cause() == "BmcRefused" {
		return call.fail(ended.Verdict.GetFailure().GetMessage(), err)
	}
	if err != nil {
		return err
	}
	return Working(kind.step, kind.takes, 0, false)
}

func (call *Call) goOn(kind kind, work Document, leaves leaves) error {
	machine := call.look()
	where, percent, left := machine.standing(work.Text("id"), call.now)
	switch where {
	case unknown:
		if err := call.allowed(kind); err != nil {
			return err
		}
		return call.give(kind, work, leaves)
	case running:
		if call.request.Is("force_reboot") {
			again := func(machine *Machine) bool { return machine.beginAgain(work.Text("id"), kind.takes, call.now) }
			if err := call.order(pb.Effect_EFFECT_POWER, "boot it anew", again); err != nil {
				return err
			}
			return Working(kind.step, kind.takes, 0, true)
		}
		call.show(work, int(percent))
		return Working(kind.step, min(left, 10), percent, false)
	case failed:
		why := kind.step + ": the machine says that it has failed"
		return call.fail(why, Failed("HardwareFailed", why, "it is tried again", pb.Retry_RETRY_LATER))
	}
	ended := call.end("Succeeded", "")
	if err := call.record(pb.Purpose_PURPOSE_NOTE); err != nil {
		return err
	}
	call.show(ended, -1)
	return nil
}

// fail: a failure is recorded before it is told.
func (call *Call) fail(why string, failure error) error {
	ended := call.end("Failed", why)
	if err := call.record(pb.Purpose_PURPOSE_NOTE); err != nil {
		return err
	}
	if ended != nil {
		call.show(ended, -1)
		call.tells(ended.Text("id"))
	}
	return failure
}

// The calls.

func (call *Call) register() (*pb.Verdict, error) {
	if err := call.reached(); err != nil {
		return nil, err
	}
	if _, is := call.data["registered"]; !is {
		call.data["registered"] = call.now
		if call.data.Text("machine") == "" {
			call.data["machine"] = call.serial()
		}
		if err := call.record(pb.Purpose_PURPOSE_NOTE); err != nil {
			return nil, err
		}
	}
	call.memory.lock.Lock()
	delete(call.memory.machine(call.address).troubles, pb.Condition_CONDITION_FORGOTTEN)
	call.memory.lock.Unlock()
	id := call.facts.Text("provisioning_id")
	if id == "" {
		id = Name + "-" + call.uid
	}
	return Done("registered", Document{"id": id, "powered_on": call.look().on}), nil
}

func (call *Call) release() (*pb.Verdict, error) {
	work := call.data.Part("work")
	ended := call.end("Cancelled", "")
	_, registered := call.data["registered"]
	delete(call.data, "registered")
	if ended != nil || registered {
		if err := call.record(pb.Purpose_PURPOSE_NOTE); err != nil {
			return nil, err
		}
	}
	call.show(ended, -1)
	force := call.request.Is("force")
	machine := call.look()
	if where, _, _ := machine.standing(work.Text("id"), call.now); work != nil && where == running {
		err := call.order(pb.Effect_EFFECT_END, "end the work", func(machine *Machine) bool {
			machine.job = nil
			return true
		})
		if gone, ok := err.(Ended); ok && (!force || gone.Cause() == "NotLeading") {
			return nil, err
		}
	}
	if !force {
		if err := call.reached(); err != nil {
			return nil, err
		}
	}
	call.memory.forget(call.uid)
	return Done("done", nil), nil
}

func (call *Call) setPower() (*pb.Verdict, error) {
	if err := call.ready(); err != nil {
		return nil, err
	}
	on := call.request.Text("power") == "On"
	// Its power must never be cut: it is started anew instead.
	restarts := !on && call.facts.Is("disable_power_off")
	if restarts || call.look().on != on {
		err := call.order(pb.Effect_EFFECT_POWER, "switch it", func(machine *Machine) bool {
			machine.on = on || restarts
			return true
		})
		if err != nil {
			return nil, err
		}
	}
	return Done("power", on || restarts), nil
}

func (call *Call) inspect() (*pb.Verdict, error) {
	if err := call.work(inspects, nil); err != nil {
		return nil, err
	}
	mac := strings.ToLower(call.facts.Text("boot_mac"))
	if mac == "" {
		mac = "02:00:00:00:00:01"
	}
	serial := call.serial()
	hardware := Document{
		"cpu":          Document{"arch": "x86_64", "count": 2},
		"ramMebibytes": 4096,
		"nics":         []any{Document{"name": "eth0", "mac": mac, "pxe": true}},
		"storage":      []any{Document{"name": "/dev/vda", "serialNumber": serial + "-1", "sizeBytes": int64(64) << 30, "type": "SSD"}},
		"systemVendor": Document{"manufacturer": "Example", "productName": "Memory", "serialNumber": serial},
	}
	return Done("inspected", Document{"hardware": hardware}), nil
}

func (call *Call) provision() (*pb.Verdict, error) {
	if method, is := call.request["method"]; is && method != "Disk" {
		why := "provision the host: images are written to disks only"
		return nil, Failed("NotServed", why, "give a disk image", pb.Retry_RETRY_AFTER_CHANGE)
	}
	url := call.request.Part("image").Text("url")
	if url == "" {
		why := "provision the host: it names no image"
		return nil, Failed("InvalidRequest", why, "set spec.image.url", pb.Retry_RETRY_AFTER_CHANGE)
	}
	owner := call.owner
	err := call.work(provisions, func(*System) (*System, bool) { return &System{url, owner}, true })
	return Done("done", nil), err
}

func (call *Call) deprovision() (*pb.Verdict, error) {
	clean := call.request.Is("clean")
	// Its power may never be cut: then it stays on.
	staysOn := call.facts.Is("disable_power_off")
	err := call.work(deprovisions, func(system *System) (*System, bool) {
		if clean || system == nil {
			return nil, staysOn
		}
		// Who gives it back as it is has no claim on it any more.
		return &System{system.what, ""}, staysOn
	})
	return Done("deprovisioned", Document{"wiped": clean, "untouched": false}), err
}
