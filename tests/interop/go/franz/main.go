// The peer of franz-go.
package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/interop/job"
)

func main() { job.Run(do, code) }

func code(err error) (int16, bool) {
	var known *kerr.Error
	if errors.As(err, &known) {
		return known.Code, true
	}
	return 0, false
}

func do(j *job.Job) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	switch j.Op {
	case "about":
		job.Say(map[string]string{"client": "franz-go " + version("github.com/twmb/franz-go")})
		return nil
	case "produce":
		return produce(ctx, j)
	case "consume":
		return consume(ctx, j)
	case "transact":
		return transact(ctx, j)
	case "group":
		return group(ctx, j)
	case "secured":
		return secured(ctx, j)
	}
	return admin(ctx, j)
}

func version(module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, one := range info.Deps {
			if one.Path == module {
				return one.Version
			}
		}
	}
	return "unknown"
}

func produce(ctx context.Context, j *job.Job) error {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	acks := map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(j.Bootstrap, ",")...),
		kgo.ProducerBatchCompression(codecs[j.Codec]),
		kgo.RequiredAcks(acks[j.Acks]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}
	if !j.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	if !j.Each {
		options = append(options, kgo.ProducerLinger(5*time.Millisecond))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	records := make([]*kgo.Record, len(j.Records))
	for i, one := range j.Records {
		headers := make([]kgo.RecordHeader, len(one.Headers))
		for n, header := range one.Headers {
			headers[n] = kgo.RecordHeader{Key: header.Name, Value: header.Value}
		}
		records[i] = &kgo.Record{
			Topic: j.Topic, Partition: one.Partition, Timestamp: time.UnixMilli(one.Timestamp),
			Key: one.Key, Value: one.Value, Headers: headers,
		}
		if j.Each {
			if err := client.ProduceSync(ctx, records[i]).FirstErr(); err != nil {
				return err
			}
			job.Say(job.Ack{Partition: records[i].Partition, Offset: records[i].Offset})
		}
	}
	if j.Each {
		return nil
	}
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return err
	}
	for _, record := range records {
		job.Say(job.Ack{Partition: record.Partition, Offset: record.Offset})
	}
	return nil
}

func transact(ctx context.Context, j *job.Job) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(j.Bootstrap, ",")...),
		kgo.TransactionalID(j.ID),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	for _, one := range j.Records {
		record := &kgo.Record{Topic: j.Topic, Partition: one.Partition, Key: one.Key, Value: one.Value}
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			return err
		}
	}
	if len(j.Offsets) > 0 {
		if err := addOffsets(ctx, client, j); err != nil {
			return err
		}
	}
	job.Say(map[string]bool{"open": true})
	<-job.Leave
	return client.EndTransaction(ctx, kgo.TransactionEndTry(j.Commit))
}

// addOffsets does what a GroupTransactSession does when it ends: kgo has no call for offsets without a consumer.
func addOffsets(ctx context.Context, client *kgo.Client, j *job.Job) error {
	id, epoch, err := client.ProducerID(ctx)
	if err != nil {
		return err
	}
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = j.ID, id, epoch, j.Group
	added, err := add.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(added.ErrorCode); err != nil {
		return err
	}
	commit := kmsg.NewPtrTxnOffsetCommitRequest()
	commit.TransactionalID, commit.ProducerID, commit.ProducerEpoch, commit.Group = j.ID, id, epoch, j.Group
	commit.Generation = -1
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic = j.Topic
	for partition, offset := range j.Offsets {
		number, err := strconv.Atoi(partition)
		if err != nil {
			return err
		}
		one := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		one.Partition, one.Offset = int32(number), offset
		topic.Partitions = append(topic.Partitions, one)
	}
	commit.Topics = append(commit.Topics, topic)
	committed, err := commit.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	for _, one := range committed.Topics[0].Partitions {
		if err := kerr.ErrorForCode(one.ErrorCode); err != nil {
			return err
		}
	}
	return nil
}

func say(record *kgo.Record) {
	headers := make([]job.Header, len(record.Headers))
	for i, header := range record.Headers {
		headers[i] = job.Header{Name: header.Key, Value: header.Value}
	}
	job.Say(job.Record{
		Partition: record.Partition, Offset: record.Offset, Timestamp: record.Timestamp.UnixMilli(),
		Key: record.Key, Value: record.Value, Headers: headers,
	})
}

func consume(ctx context.Context, j *job.Job) error {
	starts := map[int32]kgo.Offset{}
	for partition, offset := range j.From {
		number, err := strconv.Atoi(partition)
		if err != nil {
			return err
		}
		starts[int32(number)] = kgo.NewOffset().At(offset)
	}
	isolation := kgo.ReadUncommitted()
	if j.Isolation == "read_committed" {
		isolation = kgo.ReadCommitted()
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(j.Bootstrap, ",")...),
		kgo.FetchIsolationLevel(isolation),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{j.Topic: starts}),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Duration(j.TimeoutMs)*time.Millisecond)
	defer cancel()
	for count := 0; count < j.Count && ctx.Err() == nil; {
		fetches := client.PollFetches(ctx)
		for _, failed := range fetches.Errors() {
			if !errors.Is(failed.Err, context.DeadlineExceeded) {
				return failed.Err
			}
		}
		fetches.EachRecord(func(record *kgo.Record) {
			say(record)
			count++
		})
	}
	return nil
}

func group(ctx context.Context, j *job.Job) error {
	changed := func(how string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			list := [][2]any{}
			for topic, numbers := range partitions {
				for _, number := range numbers {
					list = append(list, [2]any{topic, number})
				}
			}
			job.Say(map[string]any{how: list})
		}
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(j.Bootstrap, ",")...),
		kgo.ConsumerGroup(j.Group),
		kgo.ConsumeTopics(j.Topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.SessionTimeout(5 * time.Second),
		kgo.HeartbeatInterval(500 * time.Millisecond),
		kgo.OnPartitionsAssigned(changed("assigned")),
		kgo.OnPartitionsRevoked(changed("revoked")),
		kgo.OnPartitionsLost(changed("revoked")),
	}
	if j.Protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer(), kgo.Balancers(kgo.RangeBalancer()))
	} else if j.Assignor == "range" {
		options = append(options, kgo.Balancers(kgo.RangeBalancer()))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		select {
		case <-job.Leave:
			return nil
		default:
		}
		polling, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		fetches := client.PollFetches(polling)
		cancel()
		records := fetches.Records()
		for _, record := range records {
			say(record)
		}
		if len(records) > 0 {
			if err := client.CommitUncommittedOffsets(ctx); err != nil {
				return fmt.Errorf("commit: %w", err)
			}
		}
	}
}

func admin(ctx context.Context, j *job.Job) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(j.Bootstrap, ",")...))
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	switch j.Op {
	case "create":
		configs := map[string]*string{}
		for name, value := range j.Configs {
			configs[name] = kadm.StringPtr(value)
		}
		made, err := admin.CreateTopic(ctx, int32(j.PartitionCount()), 1, configs, j.Topic)
		return errors.Join(err, made.Err)
	case "delete":
		gone, err := admin.DeleteTopic(ctx, j.Topic)
		return errors.Join(err, gone.Err)
	case "add_partitions":
		more, err := admin.UpdatePartitions(ctx, j.PartitionCount(), j.Topic)
		if err != nil {
			return err
		}
		return more.Error()
	case "topics":
		topics, err := admin.ListTopics(ctx)
		if err != nil {
			return err
		}
		job.Say(map[string]any{"topics": topics.Names()})
	case "describe":
		topics, err := admin.ListTopics(ctx, j.Topic)
		if err != nil {
			return err
		}
		lines := []map[string]any{}
		for _, one := range topics[j.Topic].Partitions.Sorted() {
			lines = append(lines, map[string]any{"p": one.Partition, "leader": one.Leader, "replicas": one.Replicas})
		}
		job.Say(map[string]any{"partitions": lines})
		return topics[j.Topic].Err
	case "configs":
		described, err := admin.DescribeTopicConfigs(ctx, j.Topic)
		if err != nil {
			return err
		}
		one, err := described.On(j.Topic, nil)
		if err = errors.Join(err, one.Err); err != nil {
			return err
		}
		values := map[string]*string{}
		for _, config := range one.Configs {
			values[config.Key] = config.Value
		}
		job.Say(map[string]any{"configs": values})
	case "alter":
		changes := []kadm.AlterConfig{}
		for name, value := range j.Configs {
			changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: kadm.StringPtr(value)})
		}
		altered, err := admin.AlterTopicConfigs(ctx, changes, j.Topic)
		if err != nil {
			return err
		}
		one, err := altered.On(j.Topic, nil)
		return errors.Join(err, one.Err)
	case "groups":
		groups, err := admin.ListGroups(ctx)
		if err != nil {
			return err
		}
		job.Say(map[string]any{"groups": groups.Groups()})
	case "committed":
		found, err := admin.FetchOffsets(ctx, j.Group)
		if err != nil {
			return err
		}
		offsets := map[string]int64{}
		for partition, one := range found[j.Topic] {
			offsets[strconv.Itoa(int(partition))] = one.At
		}
		job.Say(map[string]any{"offsets": offsets})
	case "delete_group":
		gone, err := admin.DeleteGroup(ctx, j.Group)
		return errors.Join(err, gone.Err)
	case "delete_records":
		to := kadm.Offsets{}
		to.AddOffset(j.Topic, j.Partition, j.Offset, -1)
		deleted, err := admin.DeleteRecords(ctx, to)
		if err != nil {
			return err
		}
		one := deleted[j.Topic][j.Partition]
		job.Say(map[string]any{"low_watermark": one.LowWatermark})
		return one.Err
	case "offsets":
		return offsets(ctx, admin, j)
	default:
		return fmt.Errorf("no such op: %s", j.Op)
	}
	return nil
}

func offsets(ctx context.Context, admin *kadm.Client, j *job.Job) error {
	var listed kadm.ListedOffsets
	var err error
	switch at := j.At.(type) {
	case float64:
		listed, err = admin.ListOffsetsAfterMilli(ctx, int64(at), j.Topic)
	case string:
		if at == "earliest" {
			listed, err = admin.ListStartOffsets(ctx, j.Topic)
		} else {
			listed, err = admin.ListEndOffsets(ctx, j.Topic)
		}
	}
	if err != nil {
		return err
	}
	one, _ := listed.Lookup(j.Topic, j.Partition)
	job.Say(map[string]any{"offset": one.Offset})
	return one.Err
}
