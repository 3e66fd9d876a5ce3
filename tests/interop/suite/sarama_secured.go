package sarama

import (
	"crypto/tls"
	"crypto/x509"
	"os"
)

// secured adds TLS and PLAIN to a configuration if the environment tells whom to trust: every test comes in by them.
func secured(config *Config) *Config {
	file := os.Getenv("SARAMA_TEST_CA")
	if file == "" {
		return config
	}
	trusted, err := os.ReadFile(file)
	if err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(trusted) {
		panic(file + " has no certificate")
	}
	config.Net.TLS.Enable = true
	config.Net.TLS.Config = &tls.Config{RootCAs: roots}
	config.Net.SASL.Enable = true
	config.Net.SASL.User = os.Getenv("SARAMA_TEST_USER")
	config.Net.SASL.Password = os.Getenv("SARAMA_TEST_PASSWORD")
	return config
}
