// Command kube-controller-manager runs those of Kubernetes' controllers that the API itself cannot do without; which
// ones is said by flag where it is started.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

func main() { os.Exit(cli.Run(app.NewControllerManagerCommand())) }
