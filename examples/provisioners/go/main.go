// A provisioner whose machines exist in memory, as a program of its own: what each call owes the contract, without hardware in the way.
//
// METAMORPH_PROVISIONER_LISTEN names its socket (a server that starts a worker sets it).
package main

import (
	"context"
	"log"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	pb "example.com/memory/pb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

const contractVersion = 1

type service struct {
	pb.UnimplementedProvisionerServiceServer
	pb.UnimplementedTroubleServiceServer
	memory *Memory
}

func (service *service) Hello(context.Context, *pb.HelloRequest) (*pb.HelloResponse, error) {
	return &pb.HelloResponse{
		LowestVersion:  contractVersion,
		HighestVersion: contractVersion,
		Name:           Name,
		ProgramVersion: "1",
		IdPrefix:       Name + "-",
		Capabilities:   []byte(capabilities),
		CheckAddress:   checkMachines,
	}, nil
}

func (service *service) Describe(context.Context, *pb.DescribeRequest) (*pb.DescribeResponse, error) {
	return &pb.DescribeResponse{Capabilities: []byte(capabilities)}, nil
}

func (service *service) Ask(stream grpc.BidiStreamingServer[pb.AskRequest, pb.AskResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	call := first.GetCall()
	if call == nil {
		return status.Error(codes.InvalidArgument, "a stream of Ask begins with a call")
	}
	session, err := newSession(stream, call)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	verdict, err := service.memory.answer(session)
	if ended, ok := err.(Ended); ok {
		verdict = ended.Verdict
	} else if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return stream.Send(&pb.AskResponse{Message: &pb.AskResponse_Verdict{Verdict: verdict}})
}

func (service *service) Expect(context.Context, *pb.ExpectRequest) (*pb.ExpectResponse, error) {
	return &pb.ExpectResponse{}, nil
}

func (service *service) Forget(_ context.Context, request *pb.ForgetRequest) (*pb.ForgetResponse, error) {
	service.memory.forget(request.Host.GetUid())
	return &pb.ForgetResponse{}, nil
}

func (service *service) Close(context.Context, *pb.CloseRequest) (*pb.CloseResponse, error) {
	return &pb.CloseResponse{}, nil
}

// SetCondition makes machines slow, silent and so on, for `metamorph provisioner check`.
func (service *service) SetCondition(_ context.Context, request *pb.SetConditionRequest) (*pb.SetConditionResponse, error) {
	service.memory.lock.Lock()
	defer service.memory.lock.Unlock()
	machine := service.memory.machine(request.Address)
	switch {
	case request.Condition == pb.Condition_CONDITION_FOREIGN && request.On:
		machine.before, machine.system = machine.system, &System{"theirs", "another-owner"}
	case request.Condition == pb.Condition_CONDITION_FOREIGN:
		if machine.system != nil && machine.system.owner == "another-owner" {
			machine.system = machine.before
		}
	case request.On:
		machine.troubles[request.Condition] = true
	case request.Condition != pb.Condition_CONDITION_FORGOTTEN:
		delete(machine.troubles, request.Condition)
	}
	return &pb.SetConditionResponse{}, nil
}

func main() {
	path, found := strings.CutPrefix(os.Getenv("METAMORPH_PROVISIONER_LISTEN"), "unix:")
	if !found || !strings.HasPrefix(path, "/") {
		log.Fatal("METAMORPH_PROVISIONER_LISTEN names no socket: set it to unix:/path")
	}
	syscall.Umask(0o077)
	listener, err := net.Listen("unix", path)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(4 << 20))
	service := &service{memory: newMemory()}
	pb.RegisterProvisionerServiceServer(server, service)
	pb.RegisterTroubleServiceServer(server, service)
	well := health.NewServer()
	healthpb.RegisterHealthServer(server, well)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-stop
		// No new calls; those under way are answered.
		well.Shutdown()
		server.GracefulStop()
	}()
	log.Printf("listening on unix:%s", path)
	if err := server.Serve(listener); err != nil {
		log.Fatal(err)
	}
}
