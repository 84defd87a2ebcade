// franz BOOTSTRAP TOPIC PROTOCOL [MECHANISM]: writes each line of stdin as a record, reads the topic from its beginning
// until as many have come, and prints them.
//
// Files and names come from the environment: CA, CERTIFICATE (with its key), LOGIN, PASSWORD, TOKEN.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "franz:", err)
		os.Exit(1)
	}
}

func encryption() *tls.Config {
	trusted, err := os.ReadFile(os.Getenv("CA"))
	check(err)
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(trusted)
	if path := os.Getenv("CERTIFICATE"); path != "" {
		pair, err := tls.LoadX509KeyPair(path, path)
		check(err)
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}

func login(mechanism string) sasl.Mechanism {
	user, password := os.Getenv("LOGIN"), os.Getenv("PASSWORD")
	switch mechanism {
	case "PLAIN":
		return plain.Auth{User: user, Pass: password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: user, Pass: password}.AsSha512Mechanism()
	case "OAUTHBEARER":
		return oauth.Auth{Token: os.Getenv("TOKEN")}.AsMechanism()
	}
	check(fmt.Errorf("mechanism %q", mechanism))
	return nil
}

func main() {
	bootstrap, topic, protocol := os.Args[1], os.Args[2], os.Args[3]
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap), kgo.DefaultProduceTopic(topic), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	if strings.HasSuffix(protocol, "SSL") {
		options = append(options, kgo.DialTLSConfig(encryption()))
	}
	if len(os.Args) > 4 {
		options = append(options, kgo.SASL(login(os.Args[4])))
	}
	client, err := kgo.NewClient(options...)
	check(err)
	defer client.Close()
	within, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()

	wanted := 0
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); wanted++ {
		check(client.ProduceSync(within, kgo.StringRecord(lines.Text())).FirstErr())
	}
	for wanted > 0 {
		fetched := client.PollFetches(within)
		check(fetched.Err())
		fetched.EachRecord(func(record *kgo.Record) {
			fmt.Println(string(record.Value))
			wanted--
		})
	}
}
