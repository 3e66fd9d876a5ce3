package job

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
)

// Access is how a client of a secured listener comes in.
type Access struct {
	// Security is Kafka's security.protocol.
	Security  string `json:"security"`
	Mechanism string `json:"mechanism"`
	User      string `json:"user"`
	Password  string `json:"password"`
	Token     string `json:"token"`
	TokenAuth bool   `json:"tokenauth"`
	// Keytab has the key of User, Realm is its realm, Krb5 Kerberos' configuration.
	Keytab      string `json:"keytab"`
	Realm       string `json:"realm"`
	Krb5        string `json:"krb5"`
	CA          string `json:"ca"`
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
}

// TLS is the configuration for a listener of SSL or SASL_SSL, nil for another.
func (a *Access) TLS() (*tls.Config, error) {
	if !strings.HasSuffix(a.Security, "SSL") {
		return nil, nil
	}
	trusted, err := os.ReadFile(a.CA)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	if !config.RootCAs.AppendCertsFromPEM(trusted) {
		return nil, fmt.Errorf("%s has no certificate", a.CA)
	}
	if a.Certificate != "" {
		own, err := tls.LoadX509KeyPair(a.Certificate, a.Key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}

// Types names the types of an error and of all that it wraps, the outermost first.
func Types(err error) string {
	var names []string
	var walk func(error)
	walk = func(one error) {
		if one == nil {
			return
		}
		names = append(names, fmt.Sprintf("%T", one))
		switch wraps := one.(type) {
		case interface{ Unwrap() error }:
			walk(wraps.Unwrap())
		case interface{ Unwrap() []error }:
			for _, each := range wraps.Unwrap() {
				walk(each)
			}
		}
	}
	walk(err)
	return strings.Join(names, " ")
}
