package group

import (
	"context"
	"errors"
)

// EndTransaction is the Forwarder's, for a group that this gateway owns.
func (co *Coordinator) EndTransaction(ctx context.Context, group string, e TxnEnd) error {
	return errors.ErrUnsupported
}
