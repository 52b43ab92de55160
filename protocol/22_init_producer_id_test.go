package protocol

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A fresh id at epoch 0 for everyone without a transactional id.
func TestC31InitProducerID(t *testing.T) {
	versions(t, &initProducerIDAPI, func(t *testing.T, v int16) {
		next := int64(1000)
		b := &stub{producerID: func() (int64, error) { next++; return next, nil }}
		init := func(txn *string, id int64, epoch int16) *kmsg.InitProducerIDResponse {
			req := kmsg.NewPtrInitProducerIDRequest()
			req.TransactionalID, req.ProducerID, req.ProducerEpoch = txn, id, epoch
			return asked[*kmsg.InitProducerIDResponse](t, b, &initProducerIDAPI, v, req)
		}
		for _, c := range []struct {
			name  string
			txn   *string
			id    int64
			epoch int16
			fresh bool
		}{
			{"fresh", nil, -1, -1, true},
			{"goes on: the pair is not looked at", nil, 7, 3, true},
			{"id without epoch", nil, 7, -1, v < 3},
			{"epoch without id", nil, -1, 3, v < 3},
			{"empty transactional id", ptr(""), -1, -1, false},
			{"empty transactional id, going on", ptr(""), 7, 3, false},
		} {
			before := next
			resp := init(c.txn, c.id, c.epoch)
			if c.fresh {
				if resp.ErrorCode != 0 || resp.ProducerID != before+1 || resp.ProducerEpoch != 0 {
					t.Errorf("%s: %+v", c.name, resp)
				}
			} else if resp.ErrorCode != 42 || resp.ProducerID != -1 || resp.ProducerEpoch != -1 || next != before {
				t.Errorf("%s: %+v", c.name, resp)
			}
		}
	})
}

// Java's producer without a transactional id cannot look for a coordinator, so
// it must not be told to.
func TestC31InitProducerIDFailure(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int16
	}{
		{errStore, 14},
		{kerr.NotCoordinator, 14},
		{errors.Join(errStore, kerr.UnknownServerError), -1},
	} {
		b := &stub{producerID: func() (int64, error) { return 5, c.err }}
		resp := asked[*kmsg.InitProducerIDResponse](t, b, &initProducerIDAPI, 5, kmsg.NewPtrInitProducerIDRequest())
		if resp.ErrorCode != c.code || resp.ProducerID != -1 || resp.ProducerEpoch != -1 {
			t.Errorf("%v: %+v", c.err, resp)
		}
	}
}
