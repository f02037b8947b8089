package access

import (
	"crypto/tls"
	"crypto/x509"
	"errors"

	"worldengine/worldengine/platform"
)

// Config returns the TLS configuration of a server, or nil without TLS.
func (t TLS) Config() (*tls.Config, error) {
	if t == (TLS{}) {
		return nil, nil
	}
	cert, err := platform.ReadFile(t.CertFile, maxFile)
	if err != nil {
		return nil, err
	}
	key, err := platform.ReadFile(t.KeyFile, maxFile)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if t.ClientCAFile == "" {
		return config, nil
	}
	pem, err := platform.ReadFile(t.ClientCAFile, maxFile)
	if err != nil {
		return nil, err
	}
	config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !config.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, errors.New(t.ClientCAFile + " has no certificate")
	}
	return config, nil
}
