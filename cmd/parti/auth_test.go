package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/partigo/parti"
	"github.com/partigo/parti/internal/natstest"
	"github.com/partigo/parti/strategy"
	"github.com/stretchr/testify/require"
)

// everyCommand runs each command against a server that demands the flags: with them it does what it is for, and without them, or
// with what is wrong, it says that it cannot connect.
func everyCommand(t *testing.T, b bench, flags []string, wrong ...[]string) {
	t.Helper()
	w0 := b.worker("orders", numbers(4), strategy.Sticky(), parti.WithWorkerID("pod-0"))
	w1 := b.worker("orders", numbers(4), strategy.Sticky(), parti.WithWorkerID("pod-1"))
	b.WaitFor(30*time.Second, "both have their share", func() bool { return w0.Status().Running == 2 && w1.Status().Running == 2 })
	wrong = append(wrong, nil)
	for _, args := range []string{
		"inspect orders", "workers orders", "partitions orders", "groups", "drain orders pod-0", "undrain orders pod-0", "evict orders pod-0",
	} {
		for _, w := range wrong {
			code, out, errs := b.run(append(strings.Fields(args), w...)...)
			require.Equal(t, exitFailed, code, "%s %v: %s", args, w, errs)
			require.Empty(t, out)
			require.Contains(t, errs, "connect to "+b.Server.URL(), "%s %v", args, w)
		}
		b.done(append(strings.Fields(args), flags...)...)
	}
	coordinator := []string{"coordinator", "orders", "-partitions", "4"}
	for _, w := range wrong {
		code, _, errs := b.run(append(coordinator, w...)...)
		require.Equal(t, exitFailed, code, errs)
		require.Contains(t, errs, "connect to "+b.Server.URL(), w)
	}
	out, errs, end := b.background(append(coordinator, flags...)...)
	b.WaitFor(30*time.Second, "the coordinator takes part", func() bool { return strings.Contains(out.String(), "coordinating orders as") })
	require.Equal(t, exitDone, end(), errs.String())
}

// save writes a file that only this test reads.
func save(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}

// user returns the seed and the public key of a new user.
func user(t *testing.T) (seed []byte, public string) {
	t.Helper()
	pair, err := nkeys.CreateUser()
	require.NoError(t, err)
	seed, err = pair.Seed()
	require.NoError(t, err)
	public, err = pair.PublicKey()
	require.NoError(t, err)
	return seed, public
}

func TestNkey(t *testing.T) {
	seed, public := user(t)
	other, _ := user(t)
	path := save(t, "user.nk", seed)
	b := bench{t: t, Env: natstest.Single(t, natstest.WithTCP(), natstest.WithServerOptions(func(o *server.Options) {
		o.Nkeys = []*server.NkeyUser{{Nkey: public}}
	}))}
	o, err := nats.NkeyOptionFromSeed(path)
	require.NoError(t, err)
	b.auth = []nats.Option{o}
	everyCommand(t, b, []string{"-nkey", path}, []string{"-nkey", save(t, "other.nk", other)})
	code, _, errs := b.run("groups", "-nkey", save(t, "none.nk", []byte("nothing")))
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "-nkey")
}

// account is an account of a server that trusts an operator only.
type account struct {
	key nkeys.KeyPair
	jwt string
}

// creds returns the content of a credentials file for a new user of the account.
func (a account) creds(t *testing.T) []byte {
	t.Helper()
	seed, public := user(t)
	claims, err := jwt.NewUserClaims(public).Encode(a.key)
	require.NoError(t, err)
	data, err := jwt.FormatUserConfig(claims, seed)
	require.NoError(t, err)
	return data
}

func newAccount(t *testing.T, operator nkeys.KeyPair, limits jwt.JetStreamLimits) account {
	t.Helper()
	key, err := nkeys.CreateAccount()
	require.NoError(t, err)
	public, err := key.PublicKey()
	require.NoError(t, err)
	claims := jwt.NewAccountClaims(public)
	claims.Limits.JetStreamLimits = limits
	token, err := claims.Encode(operator)
	require.NoError(t, err)
	return account{key, token}
}

func TestCreds(t *testing.T) {
	operator, err := nkeys.CreateOperator()
	require.NoError(t, err)
	name, err := operator.PublicKey()
	require.NoError(t, err)
	token, err := jwt.NewOperatorClaims(name).Encode(operator)
	require.NoError(t, err)
	claims, err := jwt.DecodeOperatorClaims(token)
	require.NoError(t, err)
	unlimited := jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
	system, own, stranger := newAccount(t, operator, jwt.JetStreamLimits{}), newAccount(t, operator, unlimited), newAccount(t, operator, unlimited)
	known := &server.MemAccResolver{}
	systemName := store(t, known, system)
	store(t, known, own)
	b := bench{t: t, Env: natstest.Single(t, natstest.WithTCP(), natstest.WithServerOptions(func(o *server.Options) {
		o.TrustedOperators, o.AccountResolver, o.SystemAccount = []*jwt.OperatorClaims{claims}, known, systemName
	}))}
	path := save(t, "user.creds", own.creds(t))
	b.auth = []nats.Option{nats.UserCredentials(path)}
	everyCommand(t, b, []string{"-creds", path}, []string{"-creds", save(t, "stranger.creds", stranger.creds(t))},
		[]string{"-creds", filepath.Join(t.TempDir(), "none")})
}

// store makes the account known and returns its name.
func store(t *testing.T, r *server.MemAccResolver, a account) string {
	t.Helper()
	name, err := a.key.PublicKey()
	require.NoError(t, err)
	require.NoError(t, r.Store(name, a.jwt))
	return name
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // for those who trust it
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return authority{cert, key, save(t, "ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))}
}

// issue returns the files of a new certificate and its key.
func (a authority) issue(t *testing.T, usage x509.ExtKeyUsage) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}, a.cert, &key.PublicKey, a.key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return save(t, "cert.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		save(t, "key.pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
}

func TestTLS(t *testing.T) {
	ca, strange := newAuthority(t), newAuthority(t)
	certFile, keyFile := ca.issue(t, x509.ExtKeyUsageServerAuth)
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	b := bench{t: t, Env: natstest.Single(t, natstest.WithTCP(), natstest.WithServerOptions(func(o *server.Options) {
		o.TLS, o.TLSVerify, o.TLSTimeout = true, true, 30
		o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
	}))}
	certFile, keyFile = ca.issue(t, x509.ExtKeyUsageClientAuth)
	strangeCert, strangeKey := strange.issue(t, x509.ExtKeyUsageClientAuth)
	everyCommand(t, b, []string{"-tlsca", ca.file, "-tlscert", certFile, "-tlskey", keyFile},
		[]string{"-tlsca", ca.file}, []string{"-tlscert", certFile, "-tlskey", keyFile},
		[]string{"-tlsca", strange.file, "-tlscert", certFile, "-tlskey", keyFile},
		[]string{"-tlsca", ca.file, "-tlscert", strangeCert, "-tlskey", strangeKey},
		[]string{"-tlsca", ca.file, "-tlscert", "/none", "-tlskey", "/none"}, []string{"-tlsca", "/none"})
	code, _, errs := b.run("coordinator", "orders", "-tlskey", keyFile)
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "-tlscert and -tlskey go together")
}
