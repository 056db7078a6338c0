// What kubectl and kOps read of a YAML text: the readers that Kubernetes uses, at the versions of hack/kube-assets.
module github.com/tidewaiter/tidewaiter/hack/yaml-oracle

go 1.26.0

require (
	k8s.io/apimachinery v0.36.3
	sigs.k8s.io/yaml v1.6.0
)

require (
	go.yaml.in/yaml/v2 v2.4.3 // indirect
	sigs.k8s.io/json v0.0.0-20250730193827-2d320260d730 // indirect
)
