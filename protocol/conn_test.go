package protocol

import (
	"bytes"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestServerSmoke(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s := startServer(t, w, nil)
	p := s.dial(t)
	v := ask[*kmsg.ApiVersionsResponse](p, 3, &kmsg.ApiVersionsRequest{ClientSoftwareName: "test", ClientSoftwareVersion: "1.0"})
	if v.ErrorCode != 0 || len(v.ApiKeys) != len(apis) {
		t.Fatalf("%+v", v)
	}
	m := ask[*kmsg.MetadataResponse](p, 12, kmsg.NewPtrMetadataRequest())
	if len(m.Topics) != 2 || len(m.Brokers) != 1 {
		t.Fatalf("%+v", m)
	}
	b := batch(5, 10_000)
	pr := ask[*kmsg.ProduceResponse](p, 9, produceOf(w, "t0", -1, bytes.Clone(b)))
	if sp := pr.Topics[0].Partitions[0]; sp.ErrorCode != 0 || sp.BaseOffset != 0 {
		t.Fatalf("%+v", pr)
	}
	fr := ask[*kmsg.FetchResponse](p, 12, recordsOf(w, "t0", 0, 0))
	if sp := fr.Topics[0].Partitions[0]; sp.ErrorCode != 0 || len(sp.RecordBatches) != len(b) || sp.HighWatermark != 1 {
		t.Fatalf("%+v", fr)
	}
	lr := kmsg.NewPtrListOffsetsRequest()
	lr.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "t0", Partitions: []kmsg.ListOffsetsRequestTopicPartition{{Timestamp: -1, CurrentLeaderEpoch: -1}}}}
	lo := ask[*kmsg.ListOffsetsResponse](p, 7, lr)
	if sp := lo.Topics[0].Partitions[0]; sp.Offset != 1 || sp.ErrorCode != 0 {
		t.Fatalf("%+v", lo)
	}
}
