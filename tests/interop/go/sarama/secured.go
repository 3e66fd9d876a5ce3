package main

import (
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"

	"ottla/interop/job"
)

// secured writes one record through a secured listener and reads it again.
func secured(j *job.Job) error {
	config := settings()
	config.Metadata.Retry.Max = 1
	config.Producer.Return.Successes = true
	config.Consumer.Return.Errors = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	secure, err := j.TLS()
	if err != nil {
		return err
	}
	config.Net.TLS.Enable, config.Net.TLS.Config = secure != nil, secure
	if j.Mechanism != "" {
		config.Net.SASL.Enable = true
		config.Net.SASL.Mechanism = sarama.SASLMechanism(j.Mechanism)
		config.Net.SASL.User, config.Net.SASL.Password = j.User, j.Password
		config.Net.SASL.TokenProvider = token(j.Token)
		config.Net.SASL.GSSAPI = sarama.GSSAPIConfig{
			AuthType: sarama.KRB5_KEYTAB_AUTH, ServiceName: "kafka", Username: j.User, Realm: j.Realm,
			KeyTabPath: j.Keytab, KerberosConfigPath: j.Krb5,
		}
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramming{mechanism: j.Mechanism} }
	}
	client, err := sarama.NewClient([]string{j.Bootstrap}, config)
	if err != nil {
		return err
	}
	defer client.Close()
	producer, err := sarama.NewSyncProducerFromClient(client)
	if err != nil {
		return err
	}
	defer producer.Close()
	partition, offset, err := producer.SendMessage(&sarama.ProducerMessage{Topic: j.Topic, Value: sarama.StringEncoder(j.ID)})
	if err != nil {
		return err
	}
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return err
	}
	defer consumer.Close()
	reading, err := consumer.ConsumePartition(j.Topic, partition, offset)
	if err != nil {
		return err
	}
	defer reading.Close()
	select {
	case message := <-reading.Messages():
		job.Say(map[string]string{"read": string(message.Value)})
	case failed := <-reading.Errors():
		return failed
	case <-time.After(30 * time.Second):
		return errors.New("the record cannot be read")
	}
	return nil
}

type token string

func (t token) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(t)}, nil
}

// scramming is the conversation of SCRAM, which sarama leaves to its users.
type scramming struct {
	mechanism    string
	conversation *scram.ClientConversation
}

func (s *scramming) Begin(user, password, authorization string) error {
	hash := scram.HashGeneratorFcn(sha256.New)
	if s.mechanism == sarama.SASLTypeSCRAMSHA512 {
		hash = sha512.New
	}
	client, err := hash.NewClient(user, password, authorization)
	if err != nil {
		return err
	}
	s.conversation = client.NewConversation()
	return nil
}

func (s *scramming) Step(challenge string) (string, error) { return s.conversation.Step(challenge) }
func (s *scramming) Done() bool                            { return s.conversation.Done() }
