package main

import pb "example.com/memory/pb"

// System is what is on a disk, and whose it is; nobody's is empty.
type System struct{ what, owner string }

// Job is work that a machine carries out by itself.
type Job struct {
	id           string
	begun, until float64
	leaves       func(*System) (*System, bool)
	fails, over  bool
}

// Machine is one machine in memory. It carries out a piece of work once, by its id.
type Machine struct {
	on       bool
	system   *System
	before   *System
	job      *Job
	troubles map[pb.Condition]bool
}

func (machine *Machine) settle(now float64) {
	job := machine.job
	if job == nil || job.over || job.until > now {
		return
	}
	job.over = true
	if !job.fails && job.leaves != nil {
		machine.system, machine.on = job.leaves(machine.system)
	}
}

func (machine *Machine) begin(id string, takes float64, leaves func(*System) (*System, bool), now float64) bool {
	if machine.job != nil && machine.job.id == id {
		return false
	}
	if machine.troubles[pb.Condition_CONDITION_SLOW] {
		takes *= 10
	}
	fails := machine.troubles[pb.Condition_CONDITION_FAILING]
	delete(machine.troubles, pb.Condition_CONDITION_FAILING)
	machine.job = &Job{id: id, begun: now, until: now + takes, leaves: leaves, fails: fails}
	return true
}

func (machine *Machine) beginAgain(id string, takes, now float64) bool {
	job := machine.job
	if job == nil || job.id != id || job.over {
		return false
	}
	machine.job = nil
	machine.begin(id, takes, job.leaves, now)
	machine.job.fails = machine.job.fails || job.fails
	return true
}

// Where a piece of work is.
const (
	unknown = iota
	running
	finished
	failed
)

func (machine *Machine) standing(id string, now float64) (where int, percent uint32, left float64) {
	job := machine.job
	switch {
	case job == nil || job.id != id:
		return unknown, 0, 0
	case job.over && job.fails:
		return failed, 0, 0
	case job.over:
		return finished, 0, 0
	}
	left = max(job.until-now, 0)
	done := 100 - left*100/max(job.until-job.begun, 0.001)
	return running, uint32(min(max(done, 0), 99)), left
}
