// The peer of sarama.
package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"ottla/interop/job"
)

func main() { job.Run(do, code) }

func code(err error) (int16, bool) {
	var known sarama.KError
	if errors.As(err, &known) {
		return int16(known), true
	}
	var topic *sarama.TopicError
	if errors.As(err, &topic) {
		return int16(topic.Err), true
	}
	var partitions *sarama.TopicPartitionError
	if errors.As(err, &partitions) {
		return int16(partitions.Err), true
	}
	return 0, false
}

func do(j *job.Job) error {
	switch j.Op {
	case "about":
		job.Say(map[string]string{"client": "sarama " + version("github.com/IBM/sarama")})
		return nil
	case "produce":
		return produce(j)
	case "consume":
		return consume(j)
	case "transact":
		return transact(j)
	case "group":
		return group(j)
	case "secured":
		return secured(j)
	}
	return admin(j)
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

func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Metadata.Retry.Max = 60
	config.Metadata.Retry.Backoff = 250 * time.Millisecond
	return config
}

// bytes keeps absent bytes absent: an Encoder that is nil is null on the wire.
func encoder(data []byte) sarama.Encoder {
	if data == nil {
		return nil
	}
	return sarama.ByteEncoder(data)
}

func produce(j *job.Job) error {
	codecs := map[string]sarama.CompressionCodec{
		"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
		"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
	}
	acks := map[string]sarama.RequiredAcks{"0": sarama.NoResponse, "1": sarama.WaitForLocal, "all": sarama.WaitForAll}
	config := settings()
	config.Producer.Compression = codecs[j.Codec]
	config.Producer.RequiredAcks = acks[j.Acks]
	config.Producer.Idempotent = j.Idempotent
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Return.Successes = true
	config.Producer.Retry.Max = 120
	config.Producer.Retry.Backoff = 250 * time.Millisecond
	if j.Idempotent {
		config.Net.MaxOpenRequests = 1
	}
	if !j.Each {
		config.Producer.Flush.Frequency = 5 * time.Millisecond
	}
	producer, err := sarama.NewSyncProducer([]string{j.Bootstrap}, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	messages := make([]*sarama.ProducerMessage, len(j.Records))
	for i, one := range j.Records {
		headers := make([]sarama.RecordHeader, len(one.Headers))
		for n, header := range one.Headers {
			headers[n] = sarama.RecordHeader{Key: []byte(header.Name), Value: header.Value}
		}
		messages[i] = &sarama.ProducerMessage{
			Topic: j.Topic, Partition: one.Partition, Timestamp: time.UnixMilli(one.Timestamp),
			Key: encoder(one.Key), Value: encoder(one.Value), Headers: headers,
		}
		if j.Each {
			partition, offset, err := producer.SendMessage(messages[i])
			if err != nil {
				return err
			}
			job.Say(job.Ack{Partition: partition, Offset: offset})
		}
	}
	if j.Each {
		return nil
	}
	if err := producer.SendMessages(messages); err != nil {
		var failed sarama.ProducerErrors
		if errors.As(err, &failed) {
			return failed[0].Err
		}
		return err
	}
	for _, message := range messages {
		job.Say(job.Ack{Partition: message.Partition, Offset: message.Offset})
	}
	return nil
}

func transact(j *job.Job) error {
	config := settings()
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Producer.Transaction.ID = j.ID
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Return.Successes = true
	config.Producer.Retry.Max = 120
	config.Producer.Retry.Backoff = 250 * time.Millisecond
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer([]string{j.Bootstrap}, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	if err := producer.BeginTxn(); err != nil {
		return err
	}
	for _, one := range j.Records {
		message := &sarama.ProducerMessage{
			Topic: j.Topic, Partition: one.Partition, Key: encoder(one.Key), Value: encoder(one.Value),
		}
		if _, _, err := producer.SendMessage(message); err != nil {
			return err
		}
	}
	if len(j.Offsets) > 0 {
		var offsets []*sarama.PartitionOffsetMetadata
		for partition, offset := range j.Offsets {
			number, err := strconv.Atoi(partition)
			if err != nil {
				return err
			}
			offsets = append(offsets, &sarama.PartitionOffsetMetadata{Partition: int32(number), Offset: offset})
		}
		all := map[string][]*sarama.PartitionOffsetMetadata{j.Topic: offsets}
		if err := producer.AddOffsetsToTxn(all, j.Group); err != nil {
			return err
		}
	}
	job.Say(map[string]bool{"open": true})
	<-job.Leave
	if j.Commit {
		return producer.CommitTxn()
	}
	return producer.AbortTxn()
}

func say(message *sarama.ConsumerMessage) {
	headers := make([]job.Header, len(message.Headers))
	for i, header := range message.Headers {
		headers[i] = job.Header{Name: string(header.Key), Value: header.Value}
	}
	job.Say(job.Record{
		Partition: message.Partition, Offset: message.Offset, Timestamp: message.Timestamp.UnixMilli(),
		Key: message.Key, Value: message.Value, Headers: headers,
	})
}

func consume(j *job.Job) error {
	config := settings()
	if j.Isolation == "read_committed" {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	consumer, err := sarama.NewConsumer([]string{j.Bootstrap}, config)
	if err != nil {
		return err
	}
	defer consumer.Close()
	all := make(chan *sarama.ConsumerMessage)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	defer readers.Wait()
	defer close(stop)
	for partition, offset := range j.From {
		number, err := strconv.Atoi(partition)
		if err != nil {
			return err
		}
		reading, err := consumer.ConsumePartition(j.Topic, int32(number), offset)
		if err != nil {
			return err
		}
		readers.Add(1)
		go func() {
			defer readers.Done()
			defer reading.Close()
			for {
				select {
				case message, open := <-reading.Messages():
					if !open {
						return
					}
					select {
					case all <- message:
					case <-stop:
						return
					}
				case <-stop:
					return
				}
			}
		}()
	}
	deadline := time.After(time.Duration(j.TimeoutMs) * time.Millisecond)
	for count := 0; count < j.Count; count++ {
		select {
		case message := <-all:
			say(message)
		case <-deadline:
			return nil
		}
	}
	return nil
}

// member tells what it is assigned, and commits what it said.
type member struct{}

func (member) Setup(session sarama.ConsumerGroupSession) error {
	return told("assigned", session)
}

func (member) Cleanup(session sarama.ConsumerGroupSession) error {
	return told("revoked", session)
}

func told(how string, session sarama.ConsumerGroupSession) error {
	list := [][2]any{}
	for topic, partitions := range session.Claims() {
		for _, partition := range partitions {
			list = append(list, [2]any{topic, partition})
		}
	}
	job.Say(map[string]any{how: list})
	return nil
}

func (member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			say(message)
			session.MarkMessage(message, "")
			if len(claim.Messages()) == 0 {
				session.Commit()
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func group(j *job.Job) error {
	config := settings()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Session.Timeout = 5 * time.Second
	config.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	config.Consumer.Group.Rebalance.Timeout = 5 * time.Second
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	one, err := sarama.NewConsumerGroup([]string{j.Bootstrap}, j.Group, config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-job.Leave
		cancel()
	}()
	for ctx.Err() == nil {
		// Consume ends at every rebalance, and while the node is away: it is to be called again.
		if err := one.Consume(ctx, j.Topics, member{}); err != nil && ctx.Err() == nil {
			time.Sleep(100 * time.Millisecond)
		}
	}
	return one.Close()
}

func admin(j *job.Job) error {
	admin, err := sarama.NewClusterAdmin([]string{j.Bootstrap}, settings())
	if err != nil {
		return err
	}
	defer admin.Close()
	switch j.Op {
	case "create":
		configs := map[string]*string{}
		for name, value := range j.Configs {
			configs[name] = &value
		}
		detail := &sarama.TopicDetail{
			NumPartitions: int32(j.PartitionCount()), ReplicationFactor: 1, ConfigEntries: configs,
		}
		return admin.CreateTopic(j.Topic, detail, false)
	case "delete":
		return admin.DeleteTopic(j.Topic)
	case "add_partitions":
		return admin.CreatePartitions(j.Topic, int32(j.PartitionCount()), nil, false)
	case "topics":
		found, err := admin.ListTopics()
		if err != nil {
			return err
		}
		names := []string{}
		for name := range found {
			names = append(names, name)
		}
		job.Say(map[string]any{"topics": names})
	case "describe":
		found, err := admin.DescribeTopics([]string{j.Topic})
		if err != nil {
			return err
		}
		lines := []map[string]any{}
		for _, one := range found[0].Partitions {
			lines = append(lines, map[string]any{"p": one.ID, "leader": one.Leader, "replicas": one.Replicas})
		}
		job.Say(map[string]any{"partitions": lines})
		if found[0].Err != sarama.ErrNoError {
			return found[0].Err
		}
	case "configs":
		entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: j.Topic})
		if err != nil {
			return err
		}
		values := map[string]string{}
		for _, entry := range entries {
			values[entry.Name] = entry.Value
		}
		job.Say(map[string]any{"configs": values})
	case "alter":
		changes := map[string]sarama.IncrementalAlterConfigsEntry{}
		for name, value := range j.Configs {
			changes[name] = sarama.IncrementalAlterConfigsEntry{
				Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value,
			}
		}
		return admin.IncrementalAlterConfig(sarama.TopicResource, j.Topic, changes, false)
	case "groups":
		found, err := admin.ListConsumerGroups()
		if err != nil {
			return err
		}
		names := []string{}
		for name := range found {
			names = append(names, name)
		}
		job.Say(map[string]any{"groups": names})
	case "committed":
		found, err := admin.ListConsumerGroupOffsets(j.Group, nil)
		if err != nil {
			return err
		}
		offsets := map[string]int64{}
		for partition, block := range found.Blocks[j.Topic] {
			offsets[strconv.Itoa(int(partition))] = block.Offset
		}
		job.Say(map[string]any{"offsets": offsets})
	case "delete_group":
		return admin.DeleteConsumerGroup(j.Group)
	case "offsets":
		return offsets(admin, j)
	default:
		return fmt.Errorf("no such op: %s", j.Op)
	}
	return nil
}

func offsets(admin sarama.ClusterAdmin, j *job.Job) error {
	at := sarama.OffsetNewest
	switch wanted := j.At.(type) {
	case float64:
		at = int64(wanted)
	case string:
		if wanted == "earliest" {
			at = sarama.OffsetOldest
		}
	}
	listed, err := admin.ListOffsets(map[string]map[int32]int64{j.Topic: {j.Partition: at}}, nil)
	if err != nil {
		return err
	}
	one := listed[j.Topic][j.Partition]
	job.Say(map[string]any{"offset": one.Offset})
	if one.Err != nil && one.Err != sarama.ErrNoError {
		return one.Err
	}
	return nil
}
