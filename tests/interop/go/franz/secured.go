package main

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"ottla/interop/job"
)

// secured writes one record through a secured listener and reads it again.
func secured(ctx context.Context, j *job.Job) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	options := []kgo.Opt{
		kgo.SeedBrokers(j.Bootstrap), kgo.DefaultProduceTopic(j.Topic), kgo.RequestRetries(2), kgo.RecordRetries(2),
		kgo.UnknownTopicRetries(2),
	}
	config, err := j.TLS()
	if err != nil {
		return err
	}
	if config != nil {
		options = append(options, kgo.DialTLSConfig(config))
	}
	mechanisms := map[string]sasl.Mechanism{
		"PLAIN":         plain.Auth{User: j.User, Pass: j.Password}.AsMechanism(),
		"SCRAM-SHA-256": scram.Auth{User: j.User, Pass: j.Password}.AsSha256Mechanism(),
		"SCRAM-SHA-512": scram.Auth{User: j.User, Pass: j.Password}.AsSha512Mechanism(),
		"OAUTHBEARER":   oauth.Auth{Token: j.Token}.AsMechanism(),
	}
	if j.Mechanism != "" {
		options = append(options, kgo.SASL(mechanisms[j.Mechanism]))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.Ping(ctx); err != nil {
		return err
	}
	sent, err := client.ProduceSync(ctx, &kgo.Record{Value: []byte(j.ID)}).First()
	if err != nil {
		return err
	}
	at := map[int32]kgo.Offset{sent.Partition: kgo.NewOffset().At(sent.Offset)}
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{j.Topic: at})
	fetches := client.PollFetches(ctx)
	if err := fetches.Err(); err != nil {
		return err
	}
	job.Say(map[string]string{"read": string(fetches.Records()[0].Value)})
	return nil
}
