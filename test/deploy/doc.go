// Package deploy tests what is shipped beside the binary: the Dockerfile and
// the manifests in deploy/. It is a module of its own, so that the libraries of
// Kubernetes and BuildKit are no dependencies of the product.
package deploy
