package partition

import "context"

// Size is what the partition's stream holds, in bytes as the store counts them:
// payloads, headers and the store's own overhead, of one replica. It asks the
// leader; a stopped partition has a size as well. Errors are failures of the
// store.
func (p *Partition) Size(ctx context.Context) (bytes int64, err error) {
	b, err := p.bounds(ctx)
	if err != nil {
		return 0, own(err)
	}
	return int64(b.Bytes), nil
}
