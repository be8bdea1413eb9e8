// Drives an API server with client-go's typed clients in Kubernetes' protobuf: each kind is created, read, listed,
// watched, updated, patched and deleted, and must come back as it was sent. The first argument is a kubeconfig.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"strings"
	"time"

	admission "k8s.io/api/admissionregistration/v1"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	events "k8s.io/api/events/v1"
	rbac "k8s.io/api/rbac/v1"
	extensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	extensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const protobuf = "application/vnd.kubernetes.protobuf"

// What typed clients have in common.
type client[T runtime.Object, L runtime.Object] interface {
	Create(context.Context, T, meta.CreateOptions) (T, error)
	Get(context.Context, string, meta.GetOptions) (T, error)
	List(context.Context, meta.ListOptions) (L, error)
	Watch(context.Context, meta.ListOptions) (watch.Interface, error)
	Update(context.Context, T, meta.UpdateOptions) (T, error)
	Patch(context.Context, string, types.PatchType, []byte, meta.PatchOptions, ...string) (T, error)
	Delete(context.Context, string, meta.DeleteOptions) error
}

func must(what string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		os.Exit(1)
	}
}

func check(what string, good bool, details ...any) {
	if !good {
		fmt.Fprintln(os.Stderr, append([]any{what}, details...)...)
		os.Exit(1)
	}
}

// Refuses answers that are not in the media type that was asked for.
type strict struct{ next http.RoundTripper }

func (s strict) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := s.next.RoundTrip(request)
	if err == nil {
		given := response.Header.Get("Content-Type")
		if request.Header.Get("Accept") != "" && !strings.HasPrefix(given, protobuf) {
			return response, fmt.Errorf("%s %s answered with %q (%s)", request.Method, request.URL.Path, given, request.Header.Get("Accept"))
		}
	}
	return response, err
}

func run[T interface {
	runtime.Object
	meta.Object
}, L runtime.Object](api client[T, L], object T, content func(T) any) {
	kind := reflect.TypeOf(object).Elem().String()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	watching, err := api.Watch(ctx, meta.ListOptions{})
	must(kind+": watch", err)
	defer watching.Stop()
	sent := content(object)
	made, err := api.Create(ctx, object, meta.CreateOptions{})
	must(kind+": create", err)
	check(kind+": the answer differs", reflect.DeepEqual(content(made), sent), content(made), sent)
	born := made.GetCreationTimestamp()
	check(kind+": no uid or time", made.GetUID() != "" && !born.IsZero())
	read, err := api.Get(ctx, made.GetName(), meta.GetOptions{})
	must(kind+": get", err)
	if _, settles := any(object).(*extensions.CustomResourceDefinition); settles {
		// A controller writes a definition's status right after its creation.
		check(kind+": what is read differs", reflect.DeepEqual(content(read), sent), read, made)
	} else {
		check(kind+": what is read differs", reflect.DeepEqual(read, made), read, made)
	}
	list, err := api.List(ctx, meta.ListOptions{Limit: 500})
	must(kind+": list", err)
	check(kind+": not in the list", contains(list, made))
	read.SetLabels(map[string]string{"changed": "yes", "also": ""})
	changed, err := api.Update(ctx, read, meta.UpdateOptions{})
	must(kind+": update", err)
	also, there := changed.GetLabels()["also"]
	check(kind+": labels are lost", changed.GetLabels()["changed"] == "yes" && there && also == "", changed.GetLabels())
	_, err = api.Update(ctx, made, meta.UpdateOptions{})
	check(kind+": a lost update is no conflict", errors.IsConflict(err), err)
	for _, patch := range []types.PatchType{types.MergePatchType, types.StrategicMergePatchType} {
		body := fmt.Sprintf(`{"metadata":{"annotations":{"patched":%q}}}`, patch)
		patched, err := api.Patch(ctx, made.GetName(), patch, []byte(body), meta.PatchOptions{})
		must(kind+": patch", err)
		check(kind+": patch is lost", patched.GetAnnotations()["patched"] == string(patch))
	}
	seconds, version := int64(0), changed.GetUID()
	must(kind+": delete", api.Delete(ctx, made.GetName(), meta.DeleteOptions{
		GracePeriodSeconds: &seconds, Preconditions: &meta.Preconditions{UID: &version}}))
	follow(kind, watching, made)
	fmt.Println(kind)
}

func contains[T meta.Object](list runtime.Object, wanted T) bool {
	items := reflect.ValueOf(list).Elem().FieldByName("Items")
	for i := 0; i < items.Len(); i++ {
		if items.Index(i).Addr().Interface().(meta.Object).GetUID() == wanted.GetUID() {
			return true
		}
	}
	return false
}

// The watch must tell of the whole life.
func follow[T meta.Object](kind string, watching watch.Interface, made T) {
	added := false
	for event := range watching.ResultChan() {
		object, ok := event.Object.(meta.Object)
		if !ok || object.GetName() != made.GetName() {
			check(kind+": the watch failed", event.Type != watch.Error, event.Object)
			continue
		}
		check(kind+": a wrong type came by the watch", reflect.TypeOf(event.Object) == reflect.TypeOf(made), event.Object)
		added = added || event.Type == watch.Added
		if event.Type == watch.Deleted || event.Type == watch.Modified && object.GetDeletionTimestamp() != nil {
			check(kind+": the watch missed the beginning", added)
			return
		}
	}
	check(kind+": the watch ended early", false)
}

func named(name string) meta.ObjectMeta {
	return meta.ObjectMeta{Name: name, Annotations: map[string]string{"a": "ü"}}
}

func main() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
	must("kubeconfig", err)
	config.ContentType, config.AcceptContentTypes = protobuf, protobuf
	config.QPS, config.Burst = -1, 0
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return strict{next} })
	all, err := kubernetes.NewForConfig(config)
	must("client", err)
	core_(all)
	others(all)
	definitions(config)
	partial(config)
	failures(all)
}

func core_(all *kubernetes.Clientset) {
	api := all.CoreV1()
	yes, text, port := true, "x.io/y", int32(8080)
	run(api.Secrets("default"), &core.Secret{ObjectMeta: named("s"), Type: "x.io/t", Immutable: nil,
		Data: map[string][]byte{"k": {0, 255, 10}, "empty": {}}}, func(o *core.Secret) any { return o.Data })
	run(api.ConfigMaps("default"), &core.ConfigMap{ObjectMeta: named("c"), Immutable: &yes, Data: map[string]string{"k": "v"},
		BinaryData: map[string][]byte{"b": {1}}}, func(o *core.ConfigMap) any { return []any{o.Data, o.BinaryData, o.Immutable} })
	run(api.ServiceAccounts("default"), &core.ServiceAccount{ObjectMeta: named("a"), AutomountServiceAccountToken: &yes,
		ImagePullSecrets: []core.LocalObjectReference{{Name: "s"}}}, func(o *core.ServiceAccount) any {
		return []any{o.ImagePullSecrets, *o.AutomountServiceAccountToken}
	})
	run(api.Services("default"), &core.Service{ObjectMeta: named("svc"), Spec: core.ServiceSpec{ClusterIP: "None", Ports: []core.ServicePort{
		{Name: "a", Port: 80, Protocol: "TCP", TargetPort: intstr.FromString("web"), AppProtocol: &text},
		{Name: "b", Port: 81, Protocol: "UDP", TargetPort: intstr.FromInt32(port)}}, Selector: map[string]string{"app": "x"}}},
		func(o *core.Service) any { return []any{o.Spec.Ports, o.Spec.Selector, o.Spec.ClusterIP} })
	node := "n"
	run(api.Endpoints("default"), &core.Endpoints{ObjectMeta: named("e"), Subsets: []core.EndpointSubset{{
		Addresses: []core.EndpointAddress{{IP: "10.0.0.1", NodeName: &node, TargetRef: &core.ObjectReference{Kind: "Pod", Name: "p"}}},
		Ports:     []core.EndpointPort{{Port: 80, Protocol: "TCP"}}}}}, func(o *core.Endpoints) any { return o.Subsets })
	when := meta.NewTime(time.Unix(1_760_000_000, 0))
	run(api.Nodes(), &core.Node{ObjectMeta: named("n"), Spec: core.NodeSpec{PodCIDR: "10.1.0.0/24", PodCIDRs: []string{"10.1.0.0/24"}, Unschedulable: true,
		Taints: []core.Taint{{Key: "k", Value: "v", Effect: core.TaintEffectNoExecute, TimeAdded: &when}}},
		Status: core.NodeStatus{Capacity: core.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("2Gi")},
			Allocatable: core.ResourceList{"cpu": resource.MustParse("3500m")}, NodeInfo: core.NodeSystemInfo{KernelVersion: "6"},
			Conditions: []core.NodeCondition{{Type: core.NodeReady, Status: core.ConditionTrue, LastHeartbeatTime: when}},
			Addresses:  []core.NodeAddress{{Type: core.NodeInternalIP, Address: "10.0.0.1"}}}}, func(o *core.Node) any {
		cpu, memory, free := o.Status.Capacity["cpu"], o.Status.Capacity["memory"], o.Status.Allocatable["cpu"]
		taint := o.Spec.Taints[0]
		return []any{o.Spec.PodCIDR, o.Spec.Unschedulable, taint.Key, taint.Effect, taint.TimeAdded.Unix(), cpu.String(), memory.String(),
			free.String(), o.Status.NodeInfo.KernelVersion, o.Status.Conditions[0].LastHeartbeatTime.Unix(), o.Status.Addresses}
	})
	run(api.Namespaces(), &core.Namespace{ObjectMeta: named("space")}, func(o *core.Namespace) any { return o.Annotations })
	run(api.Events("default"), &core.Event{ObjectMeta: named("ev"), InvolvedObject: core.ObjectReference{Kind: "ConfigMap", Name: "c", Namespace: "default"},
		Reason: "R", Message: "m", Source: core.EventSource{Component: "c"}, FirstTimestamp: when, LastTimestamp: when, Count: 3, Type: "Warning"},
		func(o *core.Event) any {
			return []any{o.InvolvedObject, o.Reason, o.Message, o.Source, o.FirstTimestamp.Unix(), o.Count, o.Type, o.EventTime.IsZero()}
		})
}

func others(all *kubernetes.Clientset) {
	micro := meta.NewMicroTime(time.Unix(1_760_000_000, 123_456_000))
	run(all.EventsV1().Events("default"), &events.Event{ObjectMeta: named("ev1"), EventTime: micro, ReportingController: "x.io/c", ReportingInstance: "i",
		Action: "A", Reason: "R", Type: "Normal", Note: "n", Regarding: core.ObjectReference{Kind: "ConfigMap", Name: "c", Namespace: "default"},
		Series: &events.EventSeries{Count: 2, LastObservedTime: micro}}, func(o *events.Event) any {
		return []any{o.EventTime.UnixNano(), o.Regarding, o.Note, o.ReportingController, o.Series.Count, o.Series.LastObservedTime.UnixNano()}
	})
	holder, seconds := "me", int32(15)
	run(all.CoordinationV1().Leases("default"), &coordination.Lease{ObjectMeta: named("l"), Spec: coordination.LeaseSpec{HolderIdentity: &holder,
		LeaseDurationSeconds: &seconds, RenewTime: &micro}}, func(o *coordination.Lease) any {
		return []any{*o.Spec.HolderIdentity, *o.Spec.LeaseDurationSeconds, o.Spec.RenewTime.UnixNano(), o.Spec.AcquireTime == nil}
	})
	ready, protocol, port, name := true, core.ProtocolTCP, int32(80), "p"
	run(all.DiscoveryV1().EndpointSlices("default"), &discovery.EndpointSlice{ObjectMeta: named("es"), AddressType: discovery.AddressTypeIPv4,
		Endpoints: []discovery.Endpoint{{Addresses: []string{"10.0.0.1"}, Conditions: discovery.EndpointConditions{Ready: &ready}}},
		Ports:     []discovery.EndpointPort{{Name: &name, Protocol: &protocol, Port: &port}}},
		func(o *discovery.EndpointSlice) any { return []any{o.AddressType, o.Endpoints, o.Ports} })
	if served(all, "rbac.authorization.k8s.io/v1") {
		rules := []rbac.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"s"}}}
		run(all.RbacV1().Roles("default"), &rbac.Role{ObjectMeta: named("r"), Rules: rules}, func(o *rbac.Role) any { return o.Rules })
		run(all.RbacV1().ClusterRoles(), &rbac.ClusterRole{ObjectMeta: named("cr"), Rules: rules}, func(o *rbac.ClusterRole) any { return o.Rules })
	}
	if served(all, "admissionregistration.k8s.io/v1") {
		none, url, fail := admission.SideEffectClassNone, "https://127.0.0.1:1/", admission.Ignore
		rule := admission.RuleWithOperations{Operations: []admission.OperationType{"CREATE"}, Rule: admission.Rule{APIGroups: []string{"x.io"},
			APIVersions: []string{"v1"}, Resources: []string{"things"}}}
		hook := admission.ValidatingWebhook{Name: "a.x.io", ClientConfig: admission.WebhookClientConfig{URL: &url, CABundle: nil}, FailurePolicy: &fail,
			SideEffects: &none, AdmissionReviewVersions: []string{"v1"}, Rules: []admission.RuleWithOperations{rule}}
		run(all.AdmissionregistrationV1().ValidatingWebhookConfigurations(), &admission.ValidatingWebhookConfiguration{ObjectMeta: named("v"),
			Webhooks: []admission.ValidatingWebhook{hook}}, func(o *admission.ValidatingWebhookConfiguration) any {
			return []any{o.Webhooks[0].Rules[0].Operations, o.Webhooks[0].Rules[0].APIGroups, *o.Webhooks[0].ClientConfig.URL}
		})
	}
}

// Discovery speaks JSON alone.
func served(all *kubernetes.Clientset, version string) bool {
	answer, err := all.RESTClient().Get().AbsPath("/apis/"+version).SetHeader("Accept", "").DoRaw(context.Background())
	return err == nil && strings.Contains(string(answer), "resources")
}

func definitions(config *rest.Config) {
	all, err := extensionsclient.NewForConfig(config)
	must("client", err)
	least, kept := float64(1), true
	properties := map[string]extensions.JSONSchemaProps{
		"size": {Type: "integer", Minimum: &least, Default: &extensions.JSON{Raw: []byte("3")}},
		"list": {Type: "array", Items: &extensions.JSONSchemaPropsOrArray{Schema: &extensions.JSONSchemaProps{Type: "string"}}},
		"map":  {Type: "object", AdditionalProperties: &extensions.JSONSchemaPropsOrBool{Allows: true, Schema: &extensions.JSONSchemaProps{Type: "string"}}},
		"free": {Type: "object", XPreserveUnknownFields: &kept},
		"pick": {Type: "string", Enum: []extensions.JSON{{Raw: []byte(`"a"`)}, {Raw: []byte(`"b"`)}}},
	}
	root := &extensions.JSONSchemaProps{Type: "object", Properties: map[string]extensions.JSONSchemaProps{"spec": {Type: "object", Properties: properties}}}
	definition := &extensions.CustomResourceDefinition{ObjectMeta: named("gadgets.proto.example.com"), Spec: extensions.CustomResourceDefinitionSpec{
		Group: "proto.example.com", Scope: extensions.NamespaceScoped, Names: extensions.CustomResourceDefinitionNames{Plural: "gadgets", Kind: "Gadget"},
		Versions: []extensions.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
			Schema:       &extensions.CustomResourceValidation{OpenAPIV3Schema: root},
			Subresources: &extensions.CustomResourceSubresources{Status: &extensions.CustomResourceSubresourceStatus{}}}}}}
	run(all.ApiextensionsV1().CustomResourceDefinitions(), definition, func(o *extensions.CustomResourceDefinition) any {
		return []any{o.Spec.Versions[0].Schema, o.Spec.Versions[0].Subresources}
	})
}

// Metadata of all kinds, and of custom ones, comes in protobuf too.
func partial(config *rest.Config) {
	api, err := metadata.NewForConfig(config)
	must("client", err)
	ctx := context.Background()
	for _, kind := range []schema.GroupVersionResource{{Version: "v1", Resource: "configmaps"}, {Group: "example.com", Version: "v1", Resource: "widgets"}} {
		objects := api.Resource(kind).Namespace("default")
		list, err := objects.List(ctx, meta.ListOptions{})
		must(kind.String()+": metadata list", err)
		check(kind.String()+": no metadata", len(list.Items) > 0)
		one, err := objects.Get(ctx, list.Items[0].Name, meta.GetOptions{})
		must(kind.String()+": metadata get", err)
		check(kind.String()+": other metadata", one.UID == list.Items[0].UID)
		watching, err := objects.Watch(ctx, meta.ListOptions{})
		must(kind.String()+": metadata watch", err)
		event := <-watching.ResultChan()
		_, good := event.Object.(*meta.PartialObjectMetadata)
		check(kind.String()+": no metadata by the watch", good, event)
		watching.Stop()
		fmt.Println("metadata of", kind.Resource)
	}
}

func failures(all *kubernetes.Clientset) {
	ctx := context.Background()
	_, err := all.CoreV1().Secrets("default").Get(ctx, "none", meta.GetOptions{})
	check("no NotFound", errors.IsNotFound(err), err)
	status, ok := err.(errors.APIStatus)
	check("details are lost", ok && status.Status().Details.Name == "none" && status.Status().Details.Kind == "secrets", err)
	_, err = all.CoreV1().Services("default").Create(ctx, &core.Service{ObjectMeta: named("bad")}, meta.CreateOptions{})
	check("no Invalid", errors.IsInvalid(err), err)
	status = err.(errors.APIStatus)
	check("causes are lost", len(status.Status().Details.Causes) == 1 && status.Status().Details.Causes[0].Field == "spec.ports", status)
	fmt.Println("failures")
}
