package protocol

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ApiVersions (key 18, v0–v4) says what is served: the api table, nothing else.
//
//   - A version that is not served is answered all the same, in the form of v0:
//     UNSUPPORTED_VERSION and the one key that the client needs to come back
//     with (KIP-511). Its body is not read.
//   - From v3 on the client's software name and version must be letters, digits,
//     "." and "-", with a letter or digit at both ends, else INVALID_REQUEST.
//
// v1 throttle time; v2 nothing; v3 flexible body (never the response header),
// software name, features; v4 lists features whose minimum is 0 (KIP-584).
//
// Features: metadata.version and transaction.version as Kafka 4.3.1 has them. The
// others belong to protocols that are not served yet, and clients would use them if
// listed.
var apiVersionsAPI = api{key: keyAPIVersions, min: 0, max: 4, anonymous: true, lends: true, serve: (*handler).apiVersions}

// keyAPIVersions is the one key that is treated apart before its handler runs.
const keyAPIVersions = 18

// metadata.version of Kafka 4.3.1 (org.apache.kafka.server.common.MetadataVersion).
const (
	metadataVersionMin = 7
	metadataVersion    = 30
)

// transaction.version 2: clients add partitions and groups by Produce and
// TxnOffsetCommit, and have a new epoch in each transaction (KIP-890).
const transactionVersion = 2

func (h *handler) apiVersions(_ context.Context, r *request) (kmsg.Response, error) {
	req := r.Request.(*kmsg.ApiVersionsRequest)
	resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
	if own := h.apis[keyAPIVersions]; req.Version < own.min || req.Version > own.max {
		resp.SetVersion(0)
		resp.ErrorCode = kerr.UnsupportedVersion.Code
		resp.ApiKeys = []kmsg.ApiVersionsResponseApiKey{versionsOf(own)}
		return resp, nil
	}
	if req.Version >= 3 {
		if !softwareWord(req.ClientSoftwareName) || !softwareWord(req.ClientSoftwareVersion) {
			resp.ErrorCode = kerr.InvalidRequest.Code
			return resp, nil
		}
		r.conn.softwareName, r.conn.softwareVersion = req.ClientSoftwareName, req.ClientSoftwareVersion
	}
	resp.ApiKeys = make([]kmsg.ApiVersionsResponseApiKey, 0, len(h.served))
	for _, a := range h.served {
		resp.ApiKeys = append(resp.ApiKeys, versionsOf(a))
	}
	resp.FinalizedFeaturesEpoch = 0
	feature(resp, "metadata.version", metadataVersionMin, metadataVersion)
	feature(resp, "transaction.version", 0, transactionVersion)
	return resp, nil
}

// feature lists one that is in force at its highest level. Clients before v4 fail
// at a supported one whose minimum is 0 (KAFKA-17011).
func feature(resp *kmsg.ApiVersionsResponse, name string, low, high int16) {
	if low > 0 || resp.Version >= 4 {
		supported := kmsg.NewApiVersionsResponseSupportedFeature()
		supported.Name, supported.MinVersion, supported.MaxVersion = name, low, high
		resp.SupportedFeatures = append(resp.SupportedFeatures, supported)
	}
	finalized := kmsg.NewApiVersionsResponseFinalizedFeature()
	finalized.Name, finalized.MinVersionLevel, finalized.MaxVersionLevel = name, high, high
	resp.FinalizedFeatures = append(resp.FinalizedFeatures, finalized)
}

func versionsOf(a *api) kmsg.ApiVersionsResponseApiKey {
	k := kmsg.NewApiVersionsResponseApiKey()
	k.ApiKey, k.MinVersion, k.MaxVersion = a.key, a.min, a.max
	return k
}

// softwareWord is [a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?
// (org.apache.kafka.common.requests.ApiVersionsRequest).
func softwareWord(s string) bool {
	for i := range len(s) {
		c := s[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (c != '-' && c != '.' || i == 0 || i == len(s)-1) {
			return false
		}
	}
	return s != ""
}
