package jetstream

// SetBatched switches between the read path of 2.11 and that of 2.10.
func (st *Store) SetBatched(on bool) {
	for _, c := range st.reads {
		c.batched.Store(on)
	}
}

// Conns is the number of connections.
func (st *Store) Conns() int { return len(st.conns()) }
