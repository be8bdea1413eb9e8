// One call of the server: what it asks, and what the worker asks back on its stream.
package main

import (
	"encoding/json"
	"fmt"
	"time"

	pb "example.com/memory/pb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Ended is a verdict by way of an error: the call ends with it.
type Ended struct{ Verdict *pb.Verdict }

func (ended Ended) Error() string { return ended.Verdict.String() }

// Cause of the failure, "" if it is none.
func (ended Ended) Cause() string { return ended.Verdict.GetFailure().GetCause() }

// Failed is a failure: its cause is one of the contract's (docs/external-provisioners.md).
func Failed(cause, message, advice string, retry pb.Retry) error {
	failure := &pb.Failure{Cause: cause, Message: message, Retry: retry}
	if advice != "" {
		failure.Advice = &advice
	}
	return Ended{&pb.Verdict{Verdict: &pb.Verdict_Failure{Failure: failure}}}
}

// unrecorded: the server refuses a write or an order, and the call ends without effect.
func unrecorded(attempt string, refused *pb.RecordError) error {
	cause := "RecordUnavailable"
	if refused.GetNotLeading() {
		cause = "NotLeading"
	}
	why := fmt.Sprintf("%s: %s", attempt, refused.GetWhy())
	return Failed(cause, why, "nothing was done, it is tried again", pb.Retry_RETRY_LATER)
}

// Done ends a call with the answer of that name.
func Done(answer string, value any) *pb.Verdict {
	done := &pb.Done{Answer: answer}
	if value != nil {
		done.Value, _ = json.Marshal(value)
	}
	return &pb.Verdict{Verdict: &pb.Verdict_Done{Done: done}}
}

// Working says that the work is under way.
func Working(step string, lookAgain float64, percent uint32, accepted bool) error {
	working := &pb.Working{Step: step, Percent: &percent, Accepted: accepted, LookAgain: durationpb.New(seconds(lookAgain))}
	return Ended{&pb.Verdict{Verdict: &pb.Verdict_Working{Working: working}}}
}

// Busy says that there is no room.
func Busy(reason string) error {
	busy := &pb.Busy{Reason: reason, LookAgain: durationpb.New(5 * time.Second)}
	return Ended{&pb.Verdict{Verdict: &pb.Verdict_Busy{Busy: busy}}}
}

func seconds(number float64) time.Duration { return time.Duration(number * float64(time.Second)) }

// Document is a JSON object: what is not known of it is kept.
type Document map[string]any

// Text is a member that is a text.
func (document Document) Text(name string) string {
	text, _ := document[name].(string)
	return text
}

// Number is a member that is a number.
func (document Document) Number(name string) float64 {
	number, _ := document[name].(float64)
	return number
}

// Is is a member that is true or false.
func (document Document) Is(name string) bool {
	is, _ := document[name].(bool)
	return is
}

// Part is a member that is an object; nil if there is none.
func (document Document) Part(name string) Document {
	part, _ := document[name].(map[string]any)
	return part
}

// Session is a call under way.
type Session struct {
	stream    grpc.BidiStreamingServer[pb.AskRequest, pb.AskResponse]
	call      *pb.Call
	questions uint64
	revision  uint64
	leads     bool
	now       float64
	request   Document
	facts     Document
}

func newSession(stream grpc.BidiStreamingServer[pb.AskRequest, pb.AskResponse], call *pb.Call) (*Session, error) {
	session := &Session{stream: stream, call: call, leads: call.Leads, revision: call.Recorded.GetRevision()}
	session.now = float64(call.Now.AsTime().UnixNano()) / 1e9
	session.request, session.facts = Document{}, Document{}
	if len(call.Request) > 0 {
		if err := json.Unmarshal(call.Request, &session.request); err != nil {
			return nil, fmt.Errorf("read the request: %w", err)
		}
	}
	if err := json.Unmarshal(call.Facts, &session.facts); err != nil {
		return nil, fmt.Errorf("read what is known of the host: %w", err)
	}
	return session, nil
}

// Recorded is the record's data. Who cannot read it does nothing to the machine.
func (session *Session) Recorded() (Document, error) {
	content := session.call.Recorded.GetContent()
	if content == nil {
		return Document{}, nil
	}
	held := func(why, advice string) error {
		return Failed("RecordUnreadable", "read the host's record: "+why, advice, pb.Retry_RETRY_HELD)
	}
	if content.Provisioner != Name {
		return nil, held("it is that of the provisioner "+content.Provisioner, "name that provisioner in the host's annotation")
	}
	if content.Version > Format {
		return nil, held(fmt.Sprintf("it has the format %d", content.Version), "run the version of this provisioner that wrote it")
	}
	var data Document
	if err := json.Unmarshal(content.Data, &data); err != nil || data == nil {
		return nil, held("it is no record", "restore the MachineRecord from a backup, or delete it")
	}
	return data, nil
}

// ask says something and waits for its answer. The stream's end ends the call: nothing more is done.
func (session *Session) ask(question uint64, response *pb.AskResponse) (*pb.AskRequest, error) {
	gone := Failed("NotLeading", "the server hears no more", "", pb.Retry_RETRY_LATER)
	if session.stream.Send(response) != nil {
		return nil, gone
	}
	for {
		said, err := session.stream.Recv()
		if err != nil {
			return nil, gone
		}
		switch message := said.Message.(type) {
		case *pb.AskRequest_Leadership:
			session.leads = message.Leadership.Leads
		case *pb.AskRequest_RecordWritten:
			session.leads = message.RecordWritten.Leads
			if message.RecordWritten.Question == question {
				return said, nil
			}
		case *pb.AskRequest_Answered:
			session.leads = message.Answered.Leads
			if message.Answered.Question == question {
				return said, nil
			}
		}
	}
}

// Write records data. Before an effect, as an intent: the effect follows its confirmation, or does not happen.
func (session *Session) Write(data Document, purpose pb.Purpose) error {
	session.questions++
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	write := &pb.WriteRecord{
		Question:         session.questions,
		ExpectedRevision: session.revision,
		Content:          &pb.RecordContent{Provisioner: Name, Version: Format, Data: text},
		Purpose:          purpose,
	}
	said, err := session.ask(write.Question, &pb.AskResponse{Message: &pb.AskResponse_WriteRecord{WriteRecord: write}})
	if err != nil {
		return err
	}
	switch result := said.GetRecordWritten().GetResult().(type) {
	case *pb.RecordWritten_Revision:
		session.revision = result.Revision
		return nil
	case *pb.RecordWritten_Refused:
		return unrecorded("record "+result.Refused.Error.GetWhat(), result.Refused.Error)
	}
	return Failed("RecordUnavailable", "record the work: the server does not say whether it is recorded", "", pb.Retry_RETRY_LATER)
}

// Effect does something to the machine: asks for permission, calls act, and tells what came of it. act returns whether anything happened.
func (session *Session) Effect(effect pb.Effect, detail string, act func() (bool, error)) error {
	session.questions++
	asked := &pb.MayAct{Question: session.questions, Effect: effect, Detail: detail}
	said, err := session.ask(asked.Question, &pb.AskResponse{Message: &pb.AskResponse_MayAct{MayAct: asked}})
	if err != nil {
		return err
	}
	if refused := said.GetAnswered().GetError(); refused != nil {
		return unrecorded(detail, refused)
	}
	if !said.GetAnswered().GetGranted() {
		return Failed("NotLeading", detail+": another process leads", "", pb.Retry_RETRY_LATER)
	}
	happened, err := act()
	effected := &pb.Effected{Effect: effect, NothingHappened: !happened, Detail: detail}
	// If the server does not hear it, the record says what was begun.
	_ = session.stream.Send(&pb.AskResponse{Message: &pb.AskResponse_Effected{Effected: effected}})
	return err
}

// Tell shows a piece of work (a HostOperation). Nothing is decided by it.
func (session *Session) Tell(entry Document, soon bool) {
	text, err := json.Marshal(entry)
	if err == nil {
		_ = session.stream.Send(&pb.AskResponse{Message: &pb.AskResponse_Tell{Tell: &pb.Tell{Entry: text, Soon: soon}}})
	}
}
