// A controller as they are written for any cluster: a manager with leader election and a cache, typed core objects, and a
// custom resource. For each Widget it keeps a ConfigMap with the widget's size, tells an event, and writes the status.
// It ends when its standard input does.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

var widgetKind = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}

const finalizer = "example.com/controller"

func widget() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(widgetKind)
	return object
}

type reconciler struct {
	client.Client
	events record.EventRecorder
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	found := widget()
	if err := r.Get(ctx, request.NamespacedName, found); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !found.GetDeletionTimestamp().IsZero() {
		if controllerutil.RemoveFinalizer(found, finalizer) {
			return ctrl.Result{}, r.Update(ctx, found)
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(found, finalizer) {
		return ctrl.Result{}, r.Update(ctx, found)
	}
	size, _, err := unstructured.NestedInt64(found.Object, "spec", "size")
	if err != nil {
		return ctrl.Result{}, err
	}
	kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: request.Name, Namespace: request.Namespace}}
	what, err := controllerutil.CreateOrUpdate(ctx, r.Client, kept, func() error {
		kept.Data = map[string]string{"size": strconv.FormatInt(size, 10)}
		return controllerutil.SetControllerReference(found, kept, r.Scheme())
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	if what != controllerutil.OperationResultNone {
		r.events.Eventf(found, corev1.EventTypeNormal, "Kept", "the ConfigMap was %s", what)
	}
	before := found.DeepCopy()
	if err := unstructured.SetNestedField(found.Object, true, "status", "ready"); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.Status().Patch(ctx, found, client.MergeFrom(before))
}

func run() error {
	ctrl.SetLogger(zap.New(zap.WriteTo(os.Stderr)))
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		LeaderElection:                true,
		LeaderElectionID:              "widgets.example.com",
		LeaderElectionNamespace:       "default",
		LeaderElectionReleaseOnCancel: true,
		Metrics:                       server.Options{BindAddress: "0"},
		HealthProbeBindAddress:        "0",
	})
	if err != nil {
		return fmt.Errorf("manager: %w", err)
	}
	reconciler := &reconciler{manager.GetClient(), manager.GetEventRecorderFor("widgets")}
	err = ctrl.NewControllerManagedBy(manager).For(widget()).Owns(&corev1.ConfigMap{}).Named("widgets").Complete(reconciler)
	if err != nil {
		return fmt.Errorf("controller: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return manager.Start(ctx)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
