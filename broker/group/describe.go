package group

// describe is DescribeGroups for one group. What depends on an agreed protocol
// shows only while there is one.
func (s *State) describe() Description {
	if !s.exists || s.deleting {
		return Description{Group: s.name, State: Dead}
	}
	d := Description{Group: s.name, State: s.phase, ProtocolType: s.protocolType}
	if s.phase == Stable {
		d.Protocol = s.protocol
	}
	for _, m := range s.members {
		dm := DescribedMember{Member: m.id, Instance: m.instance, Caller: Caller{ClientID: m.client, Host: m.host}}
		if s.phase == Stable {
			if b := m.metadata(s.protocol); b != nil {
				dm.Metadata = *b
			}
			dm.Assignment = m.assignment
		}
		d.Members = append(d.Members, dm)
	}
	return d
}
