// Command kube-controller-manager runs those of Kubernetes' controllers that the API itself cannot do without: of
// namespaces, garbage, service accounts and their tokens, root certificates, aggregated roles and policies. They are
// wired as in Kubernetes' own program of this name; the forty others, and all that only they need, are left out.
package main

import (
	"context"
	"flag"
	"os"
	"os/signal"
	"syscall"
	"time"

	core "k8s.io/api/core/v1"
	extensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/scheme"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/namespace"
	serviceaccounts "k8s.io/kubernetes/pkg/controller/serviceaccount"
	policystatus "k8s.io/kubernetes/pkg/controller/validatingadmissionpolicystatus"
	"k8s.io/kubernetes/pkg/generated/openapi"
	"k8s.io/kubernetes/pkg/serviceaccount"
)

const (
	workers = 10
	// How often what is served is looked up anew; Kubernetes' own program does so twice a minute.
	lookUp = 5 * time.Second
	resync = 12 * time.Hour
)

var (
	kubeconfig = flag.String("kubeconfig", "", "how to reach the API server")
	accountKey = flag.String("service-account-private-key-file", "", "key that signs the tokens of service accounts")
	rootCA     = flag.String("root-ca-file", "", "certificate that goes to each namespace and with each token")
)

func check(err error) {
	if err != nil {
		klog.ErrorS(err, "cannot go on")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}

// What controllers are made of.
type parts struct {
	config    *rest.Config
	informers informers.SharedInformerFactory
	metadata  metadatainformer.SharedInformerFactory
	mapper    *restmapper.DeferredDiscoveryRESTMapper
	ca        []byte
}

func (p *parts) client(name string) *kubernetes.Clientset {
	return kubernetes.NewForConfigOrDie(rest.AddUserAgent(rest.CopyConfig(p.config), name))
}

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	check(err)
	// The usual limit of 20 requests a second is for clusters, not for hundreds of namespaces at once.
	config.QPS, config.Burst = 500, 1000
	p := &parts{config: config}
	p.ca, err = os.ReadFile(*rootCA)
	check(err)
	trim := func(object any) (any, error) {
		if accessor, err := meta.Accessor(object); err == nil {
			accessor.SetManagedFields(nil)
		}
		return object, nil
	}
	p.informers = informers.NewSharedInformerFactoryWithOptions(p.client("shared-informers"), resync, informers.WithTransform(trim))
	about := metadata.NewForConfigOrDie(rest.AddUserAgent(rest.CopyConfig(config), "metadata-informers"))
	p.metadata = metadatainformer.NewSharedInformerFactoryWithOptions(about, resync, metadatainformer.WithTransform(trim))
	p.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(p.client("controller-discovery").Discovery()))
	go wait.Until(p.mapper.Reset, lookUp, ctx.Done())

	started := make(chan struct{})
	p.accounts(ctx)
	p.namespaces(ctx)
	p.garbage(ctx, about, started)
	p.policies(ctx)
	go clusterroleaggregation.NewClusterRoleAggregation(p.informers.Rbac().V1().ClusterRoles(),
		p.client("clusterrole-aggregation-controller").RbacV1()).Run(ctx, workers)
	p.informers.Start(ctx.Done())
	p.metadata.Start(ctx.Done())
	close(started)
	<-ctx.Done()
}

func (p *parts) accounts(ctx context.Context) {
	core := p.informers.Core().V1()
	key, err := keyutil.PrivateKeyFromFile(*accountKey)
	check(err)
	generator, err := serviceaccount.JWTTokenGenerator(serviceaccount.LegacyIssuer, key)
	check(err)
	tokens, err := serviceaccounts.NewTokensController(klog.FromContext(ctx), core.ServiceAccounts(), core.Secrets(),
		p.client("tokens-controller"), serviceaccounts.TokensControllerOptions{TokenGenerator: generator, RootCA: p.ca})
	check(err)
	go tokens.Run(ctx, workers)
	accounts, err := serviceaccounts.NewServiceAccountsController(core.ServiceAccounts(), core.Namespaces(),
		p.client("service-account-controller"), serviceaccounts.DefaultServiceAccountsControllerOptions())
	check(err)
	go accounts.Run(ctx, workers)
	publisher, err := rootcacertpublisher.NewPublisher(core.ConfigMaps(), core.Namespaces(), p.client("root-ca-cert-publisher"), p.ca)
	check(err)
	go publisher.Run(ctx, workers)
}

func (p *parts) namespaces(ctx context.Context) {
	client := p.client("namespace-controller")
	about := metadata.NewForConfigOrDie(rest.AddUserAgent(rest.CopyConfig(p.config), "namespace-controller"))
	go namespace.NewNamespaceController(ctx, client, about, client.Discovery().ServerPreferredNamespacedResources,
		p.informers.Core().V1().Namespaces(), 5*time.Minute, core.FinalizerKubernetes).Run(ctx, workers)
}

func (p *parts) garbage(ctx context.Context, about metadata.Interface, started <-chan struct{}) {
	factory := informerfactory.NewInformerFactory(p.informers, p.metadata)
	graph := garbagecollector.NewDependencyGraphBuilder(ctx, about, p.mapper, garbagecollector.DefaultIgnoredResources(), factory, started)
	client := p.client("generic-garbage-collector")
	own := metadata.NewForConfigOrDie(rest.AddUserAgent(rest.CopyConfig(p.config), "generic-garbage-collector"))
	collector, err := garbagecollector.NewComposedGarbageCollector(ctx, client, own, p.mapper, graph)
	check(err)
	go collector.Run(ctx, 2*workers, 30*time.Second)
	go collector.Sync(ctx, client.Discovery(), lookUp)
}

func (p *parts) policies(ctx context.Context) {
	client := p.client("validatingadmissionpolicy-status-controller")
	schemas := resolver.NewDefinitionsSchemaResolver(openapi.GetOpenAPIDefinitions, scheme.Scheme, extensions.Scheme)
	checker := &validating.TypeChecker{
		SchemaResolver: schemas.Combine(&resolver.ClientDiscoveryResolver{Discovery: client.Discovery()}),
		RestMapper:     p.mapper,
	}
	status, err := policystatus.NewController(p.informers.Admissionregistration().V1().ValidatingAdmissionPolicies(),
		client.AdmissionregistrationV1().ValidatingAdmissionPolicies(), checker)
	check(err)
	go status.Run(ctx, workers)
}
