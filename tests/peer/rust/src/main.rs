//! A producer or a push consumer of rocketmq-client-rust, as tests/peer/foreign_client.py has it.

#![recursion_limit = "512"]

use std::any::Any;
use std::error::Error;
use std::sync::Arc;

use rocketmq_client_rust::{
    ClientResult, ClientRuntime, ClientRuntimeConfig, ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus, ConsumeOrderlyContext, ConsumeOrderlyStatus, DefaultMQProducer,
    DefaultMQPushConsumer, LocalTransactionState, MQPushConsumer, MessageListenerConcurrently,
    MessageListenerOrderly, SendResult, TransactionListener, TransactionMQProducer,
};
use rocketmq_model::common::consumer::consume_from_where::ConsumeFromWhere;
use rocketmq_model::common::message::message_ext::MessageExt;
use rocketmq_model::common::message::message_single::Message;
use rocketmq_model::common::message::MessageTrait;
use rocketmq_protocol::protocol::heartbeat::message_model::MessageModel;
use rocketmq_observability::TelemetryBootstrapConfig;
use rocketmq_runtime::{RuntimeConfig, RuntimeOwner};
use tokio::io::AsyncReadExt;

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;
const TIMEOUT_MS: u32 = 60_000;

#[tokio::main]
async fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = RuntimeOwner::plan(RuntimeConfig::default())?.build()?;
    let mut quiet = TelemetryBootstrapConfig::default();
    quiet.logging.enabled = false;
    let telemetry = rocketmq_observability::install_global(&quiet)?;
    let client = ClientRuntime::try_new(
        runtime.root_context().component("client"),
        ClientRuntimeConfig::default(),
        telemetry.handle(),
    )?;
    let more = &arguments[4..];
    let named = Named {
        client: Arc::clone(&client),
        name_server: arguments[0].clone(),
        group: arguments[2].clone(),
        topic: arguments[3].clone(),
    };
    match arguments[1].as_str() {
        "send" => send(&named, &more[0], more[1].parse()?).await?,
        "consume" => consume(&named, &more[0], &more[1], &more[2]).await?,
        _ => transact(&named).await?,
    }
    client.shutdown().await;
    runtime.shutdown_tasks().await;
    runtime.shutdown_background();
    Ok(())
}

struct Named {
    client: Arc<ClientRuntime>,
    name_server: String,
    group: String,
    topic: String,
}

fn numbered(topic: &str, number: usize, delay_level: i32) -> Message {
    let message = Message::builder()
        .topic(topic)
        .tags(["A", "B"][number % 2])
        .key(format!("{topic}-{number}"))
        .body_slice(number.to_string().as_bytes())
        .raw_property("number", number.to_string())
        .expect("the property is nobody else's");
    if delay_level > 0 { message.delay_level(delay_level) } else { message }.build_unchecked()
}

fn show(number: usize, result: &SendResult, position: usize) {
    let part = |ids: Option<&str>| {
        let all: Vec<String> = ids.unwrap_or("-").split(',').map(str::to_string).collect();
        all[position.min(all.len() - 1)].clone()
    };
    println!(
        "sent {number} {} {} {} {} {}",
        result.send_status,
        part(result.msg_id.as_deref()),
        part(result.get_offset_msg_id()),
        result.message_queue.as_ref().map_or(-1, |queue| queue.queue_id()),
        result.queue_offset + position as u64,
    );
}

async fn send(named: &Named, how: &str, count: usize) -> Outcome {
    let mut producer = DefaultMQProducer::builder(Arc::clone(&named.client))
        .producer_group(named.group.clone())
        .name_server_addr(named.name_server.clone())
        .send_msg_timeout(TIMEOUT_MS)
        .build();
    producer.start().await?;
    let messages = (0..count).map(|number| numbered(&named.topic, number, (how == "delayed") as i32));
    if how == "batch" {
        let result = producer.send_batch(messages.collect()).await?;
        (0..count).for_each(|number| show(number, &result, number));
    } else {
        for (number, message) in messages.enumerate() {
            if how == "oneway" {
                producer.send_oneway(message).await?;
                println!("sent {number}");
            } else {
                let result = producer.send(message).await?.ok_or("no result")?;
                show(number, &result, 0);
            }
        }
    }
    producer.shutdown().await;
    Ok(())
}

struct Listener {
    refused: String,
}

impl Listener {
    /// Print a delivery; return whether it is consumed.
    fn take(&self, message: &MessageExt) -> bool {
        let body = message.body().unwrap_or_default();
        let body = String::from_utf8_lossy(&body);
        let times = message.reconsume_times();
        if body == self.refused.as_str() && times == 0 {
            println!("refused {body} {times}");
            return false;
        }
        let tags = message.get_tags().unwrap_or_default();
        println!("got {body} {times} {tags} {}", message.get_keys().unwrap_or_default());
        true
    }
}

impl MessageListenerConcurrently for Listener {
    fn consume_message(
        &self,
        messages: &[&MessageExt],
        _: &ConsumeConcurrentlyContext,
    ) -> ClientResult<ConsumeConcurrentlyStatus> {
        let is_consumed = messages.iter().all(|each| self.take(each));
        Ok(if is_consumed {
            ConsumeConcurrentlyStatus::ConsumeSuccess
        } else {
            ConsumeConcurrentlyStatus::ReconsumeLater
        })
    }
}

impl MessageListenerOrderly for Listener {
    fn consume_message(
        &self,
        messages: &[&MessageExt],
        _: &mut ConsumeOrderlyContext,
    ) -> ClientResult<ConsumeOrderlyStatus> {
        let is_consumed = messages.iter().all(|each| self.take(each));
        Ok(if is_consumed {
            ConsumeOrderlyStatus::Success
        } else {
            ConsumeOrderlyStatus::SuspendCurrentQueueAMoment
        })
    }
}

async fn consume(named: &Named, expression: &str, how: &str, refused: &str) -> Outcome {
    let model = if how == "broadcasting" { MessageModel::Broadcasting } else { MessageModel::Clustering };
    let mut consumer = DefaultMQPushConsumer::builder(Arc::clone(&named.client))
        .consumer_group(named.group.clone())
        .name_server_addr(named.name_server.clone())
        .message_model(model)
        .consume_from_where(ConsumeFromWhere::ConsumeFromFirstOffset)
        .build();
    consumer.subscribe(named.topic.as_str(), expression).await?;
    let listener = Listener { refused: refused.to_string() };
    if how == "orderly" {
        consumer.register_message_listener_orderly(listener);
    } else {
        consumer.register_message_listener_concurrently(listener);
    }
    consumer.start().await?;
    println!("started");
    until_stdin_ends().await?;
    consumer.shutdown().await;
    Ok(())
}

async fn until_stdin_ends() -> Outcome {
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    Ok(())
}

/// Decides by the body: "commit" and "rollback" at once, all others when the broker asks.
struct Decider;

impl TransactionListener for Decider {
    fn execute_local_transaction(
        &self,
        message: &dyn MessageTrait,
        _: Option<&(dyn Any + Send + Sync)>,
    ) -> LocalTransactionState {
        let body = String::from_utf8_lossy(message.get_body().map_or(&[], |body| body)).into_owned();
        println!("executed {body}");
        match body.as_str() {
            "commit" => LocalTransactionState::CommitMessage,
            "rollback" => LocalTransactionState::RollbackMessage,
            _ => LocalTransactionState::Unknown,
        }
    }

    fn check_local_transaction(&self, message: &MessageExt) -> LocalTransactionState {
        let body = message.body().unwrap_or_default();
        println!("checked {}", String::from_utf8_lossy(&body));
        LocalTransactionState::CommitMessage
    }
}

async fn transact(named: &Named) -> Outcome {
    let mut producer = TransactionMQProducer::builder(Arc::clone(&named.client))
        .producer_group(named.group.clone())
        .name_server_addr(named.name_server.clone())
        .topics(vec![named.topic.clone()])
        .send_msg_timeout(TIMEOUT_MS)
        .transaction_listener(Decider)
        .build();
    producer.start().await?;
    for body in ["commit", "rollback", "later"] {
        let message = Message::builder().topic(named.topic.clone()).body_slice(body.as_bytes());
        producer.send_message_in_transaction::<(), _>(message.build_unchecked(), None).await?;
    }
    println!("started");
    until_stdin_ends().await?;
    producer.shutdown().await;
    Ok(())
}
