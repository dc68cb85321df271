//go:build tools

// Package etcd names what `make kube` builds, so that go.mod and go.sum pin it.
package etcd

import _ "go.etcd.io/etcd/server/v3"
