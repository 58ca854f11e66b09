// A producer and a push consumer of rocketmq-client-go: the consumer refuses one message twice.
//
// Arguments: the name server, a topic that exists, and how many messages to send. It prints what
// it sends, and each delivery, until every message has been consumed.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const refusals = 2

func check(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func main() {
	rlog.SetLogLevel("fatal")
	topic := os.Args[2]
	count, err := strconv.Atoi(os.Args[3])
	check(err)
	names := primitive.NewPassthroughResolver([]string{os.Args[1]})

	sender, err := rocketmq.NewProducer(
		producer.WithNsResolver(names), producer.WithGroupName("go_producers"), producer.WithRetry(2))
	check(err)
	check(sender.Start())
	for number := 0; number < count; number++ {
		message := primitive.NewMessage(topic, []byte(strconv.Itoa(number)))
		message.WithTag("go").WithKeys([]string{"go-" + strconv.Itoa(number)})
		result, err := sender.SendSync(context.Background(), message)
		check(err)
		fmt.Println("sent", number, result.Status == primitive.SendOK, result.MsgID, result.OffsetMsgID)
	}

	var lock sync.Mutex
	consumed := map[string]bool{}
	done := make(chan bool, 1)
	receiver, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(names), consumer.WithGroupName("go_consumers"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	check(err)
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: "go"}
	check(receiver.Subscribe(topic, selector, func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		lock.Lock()
		defer lock.Unlock()
		for _, each := range messages {
			body := string(each.Body)
			if body == "0" && each.ReconsumeTimes < refusals {
				fmt.Println("refused", body, each.ReconsumeTimes)
				if concurrent, is := primitive.GetConcurrentlyCtx(ctx); is {
					concurrent.DelayLevelWhenNextConsume = 1
				}
				return consumer.ConsumeRetryLater, nil
			}
			fmt.Println("consumed", body, each.ReconsumeTimes, each.GetKeys())
			consumed[body] = true
		}
		if len(consumed) == count {
			select {
			case done <- true:
			default:
			}
		}
		return consumer.ConsumeSuccess, nil
	}))
	check(receiver.Start())
	<-done
	check(receiver.Shutdown())
	check(sender.Shutdown())
}
