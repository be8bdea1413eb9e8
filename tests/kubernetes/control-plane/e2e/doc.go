// Package e2e is that part of Kubernetes' own end-to-end suite which is about the API and nothing else.
package e2e
