package protocol

import "github.com/twmb/franz-go/pkg/kmsg"

// firstError is the first error code of a response in reading order, for
// metrics and logs. 0: none. code_test.go checks that no code field of a served
// response is forgotten.
func firstError(resp kmsg.Response) int16 {
	switch r := resp.(type) {
	case *kmsg.ProduceResponse:
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				if c := r.Topics[i].Partitions[j].ErrorCode; c != 0 {
					return c
				}
			}
		}
	case *fetchResponse:
		return firstError(&r.FetchResponse)
	case *kmsg.FetchResponse:
		if r.ErrorCode != 0 {
			return r.ErrorCode
		}
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				if c := r.Topics[i].Partitions[j].ErrorCode; c != 0 {
					return c
				}
			}
		}
	case *kmsg.ListOffsetsResponse:
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				if c := r.Topics[i].Partitions[j].ErrorCode; c != 0 {
					return c
				}
			}
		}
	case *kmsg.MetadataResponse:
		for i := range r.Topics {
			if c := r.Topics[i].ErrorCode; c != 0 {
				return c
			}
			for j := range r.Topics[i].Partitions {
				if c := r.Topics[i].Partitions[j].ErrorCode; c != 0 {
					return c
				}
			}
		}
		return r.ErrorCode
	case *kmsg.OffsetCommitResponse:
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				if c := r.Topics[i].Partitions[j].ErrorCode; c != 0 {
					return c
				}
			}
		}
	case *kmsg.OffsetFetchResponse:
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				if c := r.Topics[i].Partitions[j].ErrorCode; c != 0 {
					return c
				}
			}
		}
		for i := range r.Groups {
			g := &r.Groups[i]
			if g.ErrorCode != 0 {
				return g.ErrorCode
			}
			for j := range g.Topics {
				for k := range g.Topics[j].Partitions {
					if c := g.Topics[j].Partitions[k].ErrorCode; c != 0 {
						return c
					}
				}
			}
		}
		return r.ErrorCode
	case *kmsg.FindCoordinatorResponse:
		for i := range r.Coordinators {
			if c := r.Coordinators[i].ErrorCode; c != 0 {
				return c
			}
		}
		return r.ErrorCode
	case *kmsg.JoinGroupResponse:
		return r.ErrorCode
	case *kmsg.HeartbeatResponse:
		return r.ErrorCode
	case *kmsg.LeaveGroupResponse:
		for i := range r.Members {
			if c := r.Members[i].ErrorCode; c != 0 {
				return c
			}
		}
		return r.ErrorCode
	case *kmsg.SyncGroupResponse:
		return r.ErrorCode
	case *kmsg.DescribeGroupsResponse:
		for i := range r.Groups {
			if c := r.Groups[i].ErrorCode; c != 0 {
				return c
			}
		}
	case *kmsg.ListGroupsResponse:
		return r.ErrorCode
	case *kmsg.ApiVersionsResponse:
		return r.ErrorCode
	case *kmsg.CreateTopicsResponse:
		for i := range r.Topics {
			if c := r.Topics[i].ErrorCode; c != 0 {
				return c
			}
			if c := r.Topics[i].ConfigErrorCode; c != 0 {
				return c
			}
		}
	case *kmsg.DeleteTopicsResponse:
		for i := range r.Topics {
			if c := r.Topics[i].ErrorCode; c != 0 {
				return c
			}
		}
	case *kmsg.DeleteRecordsResponse:
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				if c := r.Topics[i].Partitions[j].ErrorCode; c != 0 {
					return c
				}
			}
		}
	case *kmsg.InitProducerIDResponse:
		return r.ErrorCode
	case *kmsg.OffsetForLeaderEpochResponse:
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				if c := r.Topics[i].Partitions[j].ErrorCode; c != 0 {
					return c
				}
			}
		}
	case *kmsg.AlterConfigsResponse:
		for i := range r.Resources {
			if c := r.Resources[i].ErrorCode; c != 0 {
				return c
			}
		}
	case *kmsg.IncrementalAlterConfigsResponse:
		for i := range r.Resources {
			if c := r.Resources[i].ErrorCode; c != 0 {
				return c
			}
		}
	case *kmsg.CreatePartitionsResponse:
		for i := range r.Topics {
			if c := r.Topics[i].ErrorCode; c != 0 {
				return c
			}
		}
	case *kmsg.ListConfigResourcesResponse:
		return r.ErrorCode
	case *kmsg.DescribeConfigsResponse:
		for i := range r.Resources {
			if c := r.Resources[i].ErrorCode; c != 0 {
				return c
			}
		}
	case *kmsg.DescribeLogDirsResponse:
		if r.ErrorCode != 0 {
			return r.ErrorCode
		}
		for i := range r.Dirs {
			if c := r.Dirs[i].ErrorCode; c != 0 {
				return c
			}
		}
	case *kmsg.DeleteGroupsResponse:
		for i := range r.Groups {
			if c := r.Groups[i].ErrorCode; c != 0 {
				return c
			}
		}
	case *kmsg.ElectLeadersResponse:
		if r.ErrorCode != 0 {
			return r.ErrorCode
		}
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				if c := r.Topics[i].Partitions[j].ErrorCode; c != 0 {
					return c
				}
			}
		}
	case *kmsg.AlterPartitionAssignmentsResponse:
		if r.ErrorCode != 0 {
			return r.ErrorCode
		}
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				if c := r.Topics[i].Partitions[j].ErrorCode; c != 0 {
					return c
				}
			}
		}
	case *kmsg.ListPartitionReassignmentsResponse:
		return r.ErrorCode
	case *kmsg.OffsetDeleteResponse:
		if r.ErrorCode != 0 {
			return r.ErrorCode
		}
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				if c := r.Topics[i].Partitions[j].ErrorCode; c != 0 {
					return c
				}
			}
		}
	case *kmsg.DescribeClusterResponse:
		return r.ErrorCode
	case *kmsg.DescribeProducersResponse:
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				if c := r.Topics[i].Partitions[j].ErrorCode; c != 0 {
					return c
				}
			}
		}
	case *kmsg.DescribeTopicPartitionsResponse:
		for i := range r.Topics {
			if c := r.Topics[i].ErrorCode; c != 0 {
				return c
			}
			for j := range r.Topics[i].Partitions {
				if c := r.Topics[i].Partitions[j].ErrorCode; c != 0 {
					return c
				}
			}
		}
	}
	return 0
}
