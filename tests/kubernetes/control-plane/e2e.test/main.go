// Command e2e.test is that part of Kubernetes' own end-to-end suite which is about the API and nothing else.
package main

import (
	"flag"
	"testing"

	conformance "k8s.io/kubernetes/test/conformance/testdata"
	suite "k8s.io/kubernetes/test/e2e"
	_ "k8s.io/kubernetes/test/e2e/apimachinery"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"
	"k8s.io/kubernetes/test/e2e/framework/testfiles"
	manifests "k8s.io/kubernetes/test/e2e/testing-manifests"
	fixtures "k8s.io/kubernetes/test/fixtures"
)

// A program as any other, and not one that `go test` makes: so it is built together with the rest.
func main() {
	testing.Init()
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	testfiles.AddFileSource(manifests.GetE2ETestingManifestsFS())
	testfiles.AddFileSource(fixtures.GetTestFixturesFS())
	testfiles.AddFileSource(conformance.GetConformanceTestdataFS())
	framework.AfterReadingAllFlags(&framework.TestContext)
	all := func(string, string) (bool, error) { return true, nil }
	testing.Main(all, []testing.InternalTest{{Name: "TestE2E", F: suite.RunE2ETests}}, nil, nil)
}
