package protocol

import (
	"cmp"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// firstError is the first error code of a response in reading order, for
// metrics and logs. 0: none. code_test.go checks that no code field of a served
// response is forgotten.
func firstError(resp kmsg.Response) int16 {
	switch r := resp.(type) {
	case *kmsg.ProduceResponse:
		return first(r.Topics, func(t *kmsg.ProduceResponseTopic) int16 {
			return first(t.Partitions, func(p *kmsg.ProduceResponseTopicPartition) int16 { return p.ErrorCode })
		})
	case *fetchResponse:
		return firstError(&r.FetchResponse)
	case *kmsg.FetchResponse:
		return cmp.Or(r.ErrorCode, first(r.Topics, func(t *kmsg.FetchResponseTopic) int16 {
			return first(t.Partitions, func(p *kmsg.FetchResponseTopicPartition) int16 { return p.ErrorCode })
		}))
	case *kmsg.ListOffsetsResponse:
		return first(r.Topics, func(t *kmsg.ListOffsetsResponseTopic) int16 {
			return first(t.Partitions, func(p *kmsg.ListOffsetsResponseTopicPartition) int16 { return p.ErrorCode })
		})
	case *kmsg.MetadataResponse:
		return cmp.Or(first(r.Topics, func(t *kmsg.MetadataResponseTopic) int16 {
			return cmp.Or(t.ErrorCode, first(t.Partitions, func(p *kmsg.MetadataResponseTopicPartition) int16 { return p.ErrorCode }))
		}), r.ErrorCode)
	case *kmsg.OffsetCommitResponse:
		return first(r.Topics, func(t *kmsg.OffsetCommitResponseTopic) int16 {
			return first(t.Partitions, func(p *kmsg.OffsetCommitResponseTopicPartition) int16 { return p.ErrorCode })
		})
	case *kmsg.OffsetFetchResponse:
		return cmp.Or(first(r.Topics, func(t *kmsg.OffsetFetchResponseTopic) int16 {
			return first(t.Partitions, func(p *kmsg.OffsetFetchResponseTopicPartition) int16 { return p.ErrorCode })
		}), first(r.Groups, func(g *kmsg.OffsetFetchResponseGroup) int16 {
			return cmp.Or(g.ErrorCode, first(g.Topics, func(t *kmsg.OffsetFetchResponseGroupTopic) int16 {
				return first(t.Partitions, func(p *kmsg.OffsetFetchResponseGroupTopicPartition) int16 { return p.ErrorCode })
			}))
		}), r.ErrorCode)
	case *kmsg.FindCoordinatorResponse:
		return cmp.Or(first(r.Coordinators, func(c *kmsg.FindCoordinatorResponseCoordinator) int16 { return c.ErrorCode }), r.ErrorCode)
	case *kmsg.JoinGroupResponse:
		return r.ErrorCode
	case *kmsg.HeartbeatResponse:
		return r.ErrorCode
	case *kmsg.LeaveGroupResponse:
		return cmp.Or(first(r.Members, func(m *kmsg.LeaveGroupResponseMember) int16 { return m.ErrorCode }), r.ErrorCode)
	case *kmsg.SyncGroupResponse:
		return r.ErrorCode
	case *kmsg.DescribeGroupsResponse:
		return first(r.Groups, func(g *kmsg.DescribeGroupsResponseGroup) int16 { return g.ErrorCode })
	case *kmsg.ListGroupsResponse:
		return r.ErrorCode
	case *kmsg.ApiVersionsResponse:
		return r.ErrorCode
	case *kmsg.CreateTopicsResponse:
		return first(r.Topics, func(t *kmsg.CreateTopicsResponseTopic) int16 { return cmp.Or(t.ErrorCode, t.ConfigErrorCode) })
	case *kmsg.DeleteTopicsResponse:
		return first(r.Topics, func(t *kmsg.DeleteTopicsResponseTopic) int16 { return t.ErrorCode })
	case *kmsg.DeleteRecordsResponse:
		return first(r.Topics, func(t *kmsg.DeleteRecordsResponseTopic) int16 {
			return first(t.Partitions, func(p *kmsg.DeleteRecordsResponseTopicPartition) int16 { return p.ErrorCode })
		})
	case *kmsg.InitProducerIDResponse:
		return r.ErrorCode
	case *kmsg.OffsetForLeaderEpochResponse:
		return first(r.Topics, func(t *kmsg.OffsetForLeaderEpochResponseTopic) int16 {
			return first(t.Partitions, func(p *kmsg.OffsetForLeaderEpochResponseTopicPartition) int16 { return p.ErrorCode })
		})
	case *kmsg.AddPartitionsToTxnResponse:
		return cmp.Or(r.ErrorCode, first(r.Transactions, func(x *kmsg.AddPartitionsToTxnResponseTransaction) int16 {
			return first(x.Topics, func(t *kmsg.AddPartitionsToTxnResponseTransactionTopic) int16 {
				return first(t.Partitions, func(p *kmsg.AddPartitionsToTxnResponseTransactionTopicPartition) int16 { return p.ErrorCode })
			})
		}), first(r.Topics, func(t *kmsg.AddPartitionsToTxnResponseTopic) int16 {
			return first(t.Partitions, func(p *kmsg.AddPartitionsToTxnResponseTopicPartition) int16 { return p.ErrorCode })
		}))
	case *kmsg.AddOffsetsToTxnResponse:
		return r.ErrorCode
	case *kmsg.EndTxnResponse:
		return r.ErrorCode
	case *kmsg.WriteTxnMarkersResponse:
		return first(r.Markers, func(m *kmsg.WriteTxnMarkersResponseMarker) int16 {
			return first(m.Topics, func(t *kmsg.WriteTxnMarkersResponseMarkerTopic) int16 {
				return first(t.Partitions, func(p *kmsg.WriteTxnMarkersResponseMarkerTopicPartition) int16 { return p.ErrorCode })
			})
		})
	case *kmsg.TxnOffsetCommitResponse:
		return first(r.Topics, func(t *kmsg.TxnOffsetCommitResponseTopic) int16 {
			return first(t.Partitions, func(p *kmsg.TxnOffsetCommitResponseTopicPartition) int16 { return p.ErrorCode })
		})
	case *kmsg.DescribeTransactionsResponse:
		return first(r.TransactionStates, func(s *kmsg.DescribeTransactionsResponseTransactionState) int16 { return s.ErrorCode })
	case *kmsg.ListTransactionsResponse:
		return r.ErrorCode
	case *kmsg.AlterConfigsResponse:
		return first(r.Resources, func(c *kmsg.AlterConfigsResponseResource) int16 { return c.ErrorCode })
	case *kmsg.IncrementalAlterConfigsResponse:
		return first(r.Resources, func(c *kmsg.IncrementalAlterConfigsResponseResource) int16 { return c.ErrorCode })
	case *kmsg.CreatePartitionsResponse:
		return first(r.Topics, func(t *kmsg.CreatePartitionsResponseTopic) int16 { return t.ErrorCode })
	case *kmsg.ListConfigResourcesResponse:
		return r.ErrorCode
	case *kmsg.DescribeConfigsResponse:
		return first(r.Resources, func(c *kmsg.DescribeConfigsResponseResource) int16 { return c.ErrorCode })
	case *kmsg.DescribeLogDirsResponse:
		return cmp.Or(r.ErrorCode, first(r.Dirs, func(d *kmsg.DescribeLogDirsResponseDir) int16 { return d.ErrorCode }))
	case *kmsg.DeleteGroupsResponse:
		return first(r.Groups, func(g *kmsg.DeleteGroupsResponseGroup) int16 { return g.ErrorCode })
	case *kmsg.ElectLeadersResponse:
		return cmp.Or(r.ErrorCode, first(r.Topics, func(t *kmsg.ElectLeadersResponseTopic) int16 {
			return first(t.Partitions, func(p *kmsg.ElectLeadersResponseTopicPartition) int16 { return p.ErrorCode })
		}))
	case *kmsg.AlterPartitionAssignmentsResponse:
		return cmp.Or(r.ErrorCode, first(r.Topics, func(t *kmsg.AlterPartitionAssignmentsResponseTopic) int16 {
			return first(t.Partitions, func(p *kmsg.AlterPartitionAssignmentsResponseTopicPartition) int16 { return p.ErrorCode })
		}))
	case *kmsg.ListPartitionReassignmentsResponse:
		return r.ErrorCode
	case *kmsg.OffsetDeleteResponse:
		return cmp.Or(r.ErrorCode, first(r.Topics, func(t *kmsg.OffsetDeleteResponseTopic) int16 {
			return first(t.Partitions, func(p *kmsg.OffsetDeleteResponseTopicPartition) int16 { return p.ErrorCode })
		}))
	case *kmsg.DescribeClusterResponse:
		return r.ErrorCode
	case *kmsg.DescribeProducersResponse:
		return first(r.Topics, func(t *kmsg.DescribeProducersResponseTopic) int16 {
			return first(t.Partitions, func(p *kmsg.DescribeProducersResponseTopicPartition) int16 { return p.ErrorCode })
		})
	case *kmsg.DescribeTopicPartitionsResponse:
		return first(r.Topics, func(t *kmsg.DescribeTopicPartitionsResponseTopic) int16 {
			return cmp.Or(t.ErrorCode, first(t.Partitions, func(p *kmsg.DescribeTopicPartitionsResponseTopicPartition) int16 { return p.ErrorCode }))
		})
	}
	return 0
}

// first is the first code that is not 0 among those of the elements.
func first[T any](of []T, code func(*T) int16) int16 {
	for i := range of {
		if c := code(&of[i]); c != 0 {
			return c
		}
	}
	return 0
}
