package consumer

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// HeaderKey is the header in which a Publisher puts the key, where the subject does not show it: in all layouts but [Mapped]. A key that begins
// or ends with white space or has line breaks would not arrive there as it is, and is refused ([ErrInvalidKey]).
const HeaderKey = "Parti-Key"

// Publisher publishes messages to the partition of their key. It has no state and is safe for concurrent use.
//
// Messages of one key are stored in the order in which their publishes were acknowledged. With PublishAsync on one connection they are
// stored in the order of the calls, unless one is lost and published again.
type Publisher struct {
	js     jetstream.JetStream
	layout Layout
}

// NewPublisher returns a Publisher for the layout.
func NewPublisher(js jetstream.JetStream, layout Layout) (*Publisher, error) {
	if js == nil {
		return nil, fmt.Errorf("%w: the JetStream context is nil: use jetstream.New(conn)", ErrInvalidConfig)
	}
	if err := layout.validate(); err != nil {
		return nil, err
	}
	return &Publisher{js: js, layout: layout}, nil
}

// Partition returns the partition of a key.
func (p *Publisher) Partition(key string) int { return p.layout.Partition(key) }

// Publish stores data as the next message of key and returns when the server has acknowledged it. Where no stream takes the subject the
// error says so, and wraps jetstream.ErrNoStreamResponse.
func (p *Publisher) Publish(ctx context.Context, key string, data []byte, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	return p.PublishMsg(ctx, key, &nats.Msg{Data: data}, opts...)
}

// PublishMsg is Publish for a message with headers. It sets the message's subject and, where the subject does not show the key, [HeaderKey].
func (p *Publisher) PublishMsg(ctx context.Context, key string, m *nats.Msg, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	if err := p.address(key, m); err != nil {
		return nil, err
	}
	ack, err := p.js.PublishMsg(ctx, m, opts...)
	if nobodyStores(err) {
		err = fmt.Errorf("consumer: no stream takes the subject %s: call Layout.CreateStreams first: %w", m.Subject, err)
	}
	return ack, err
}

// PublishMsgAsync is PublishMsg without waiting; see jetstream.PublishMsgAsync.
func (p *Publisher) PublishMsgAsync(key string, m *nats.Msg, opts ...jetstream.PublishOpt) (jetstream.PubAckFuture, error) {
	if err := p.address(key, m); err != nil {
		return nil, err
	}
	return p.js.PublishMsgAsync(m, opts...)
}

// nobodyStores reports whether a publish failed because no stream has the subject, or none that has a leader.
func nobodyStores(err error) bool {
	return errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrNoResponders)
}

func (p *Publisher) address(key string, m *nats.Msg) (err error) {
	if m == nil {
		return fmt.Errorf("%w: the message is nil: use Publish(ctx, key, nil) for one without data", ErrInvalidConfig)
	}
	if m.Subject, err = p.layout.Subject(key); err != nil {
		return err
	}
	if p.layout.mapped {
		return nil
	}
	if strings.Trim(key, " \t") != key || strings.ContainsAny(key, "\r\n") {
		return fmt.Errorf("%w: %q begins or ends with white space, or has line breaks", ErrInvalidKey, key)
	}
	if m.Header == nil {
		m.Header = nats.Header{}
	}
	m.Header.Set(HeaderKey, key)
	return nil
}
