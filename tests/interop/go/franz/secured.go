package main

import (
	"context"
	"time"

	"github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/kerberos"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"ottla/interop/job"
)

// ticketed is a client of Kerberos for the user's keytab.
func ticketed(j *job.Job) (*client.Client, error) {
	settings, err := config.Load(j.Krb5)
	if err != nil {
		return nil, err
	}
	keys, err := keytab.Load(j.Keytab)
	if err != nil {
		return nil, err
	}
	return client.NewWithKeytab(j.User, j.Realm, keys, settings), nil
}

// secured writes one record through a secured listener and reads it again.
func secured(ctx context.Context, j *job.Job) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	options := []kgo.Opt{
		kgo.SeedBrokers(j.Bootstrap), kgo.DefaultProduceTopic(j.Topic), kgo.RequestRetries(2), kgo.RecordRetries(2),
		kgo.UnknownTopicRetries(2),
	}
	secure, err := j.TLS()
	if err != nil {
		return err
	}
	if secure != nil {
		options = append(options, kgo.DialTLSConfig(secure))
	}
	mechanisms := map[string]sasl.Mechanism{
		"PLAIN":         plain.Auth{User: j.User, Pass: j.Password}.AsMechanism(),
		"SCRAM-SHA-256": scram.Auth{User: j.User, Pass: j.Password, IsToken: j.TokenAuth}.AsSha256Mechanism(),
		"SCRAM-SHA-512": scram.Auth{User: j.User, Pass: j.Password}.AsSha512Mechanism(),
		"OAUTHBEARER":   oauth.Auth{Token: j.Token}.AsMechanism(),
	}
	if j.Mechanism == "GSSAPI" {
		user, err := ticketed(j)
		if err != nil {
			return err
		}
		mechanisms["GSSAPI"] = kerberos.Auth{Client: user, Service: "kafka"}.AsMechanismWithClose()
	}
	if j.Mechanism != "" {
		options = append(options, kgo.SASL(mechanisms[j.Mechanism]))
	}
	connected, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer connected.Close()
	if err := connected.Ping(ctx); err != nil {
		return err
	}
	sent, err := connected.ProduceSync(ctx, &kgo.Record{Value: []byte(j.ID)}).First()
	if err != nil {
		return err
	}
	at := map[int32]kgo.Offset{sent.Partition: kgo.NewOffset().At(sent.Offset)}
	connected.AddConsumePartitions(map[string]map[int32]kgo.Offset{j.Topic: at})
	fetches := connected.PollFetches(ctx)
	if err := fetches.Err(); err != nil {
		return err
	}
	job.Say(map[string]string{"read": string(fetches.Records()[0].Value)})
	return nil
}
