// rskafka as a program for test/e2e/clients: the protocol is in process_test.go
// there. It has no consumer groups.

use base64::prelude::{Engine, BASE64_STANDARD};
use chrono::{DateTime, Utc};
use rskafka::client::error::{Error, ProtocolError};
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::{Record, RecordAndOffset};
use rskafka::BackoffConfig;
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::io::BufRead;
use std::time::Duration;

const TIMEOUT_MS: i32 = 10_000;

type Answer = Result<Value, Error>;

fn bytes(v: &Value) -> Option<Vec<u8>> {
    v.as_str().map(|s| BASE64_STANDARD.decode(s).expect("base64"))
}

fn encode(b: &Option<Vec<u8>>) -> Value {
    b.as_ref().map_or(Value::Null, |b| json!(BASE64_STANDARD.encode(b)))
}

fn time(v: &Value) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(v.as_i64().expect("time")).expect("time")
}

fn from_json(r: &Value) -> Record {
    let header = |h: &Value| (String::from_utf8(bytes(&h[0]).expect("key")).expect("key"), bytes(&h[1]).expect("value"));
    Record {
        key: bytes(&r["key"]),
        value: bytes(&r["value"]),
        headers: r["headers"].as_array().expect("headers").iter().map(header).collect(),
        timestamp: time(&r["time"]),
    }
}

fn to_json(partition: i32, r: &RecordAndOffset) -> Value {
    let headers: Vec<Value> = r.record.headers.iter().map(|(k, v)| json!([BASE64_STANDARD.encode(k), BASE64_STANDARD.encode(v)])).collect();
    json!({
        "partition": partition,
        "offset": r.offset,
        "key": encode(&r.record.key),
        "value": encode(&r.record.value),
        "headers": headers,
        "time": r.record.timestamp.timestamp_millis(),
    })
}

// code is Kafka's, for the errors that the scenarios provoke.
fn code(e: ProtocolError) -> i16 {
    match e {
        ProtocolError::OffsetOutOfRange => 1,
        ProtocolError::UnknownTopicOrPartition => 3,
        ProtocolError::MessageTooLarge => 10,
        ProtocolError::TopicAlreadyExists => 36,
        _ => 0,
    }
}

struct Program {
    client: Client,
}

impl Program {
    async fn partition(&self, topic: &str, partition: i32) -> Result<PartitionClient, Error> {
        self.client.partition_client(topic, partition, UnknownTopicHandling::Error).await
    }

    async fn produce(&self, topic: &str, call: &Value) -> Answer {
        let codec = match call["codec"].as_str() {
            Some("gzip") => Compression::Gzip,
            Some("snappy") => Compression::Snappy,
            Some("lz4") => Compression::Lz4,
            Some("zstd") => Compression::Zstd,
            _ => Compression::NoCompression,
        };
        let mut by_partition: BTreeMap<i32, Vec<Record>> = BTreeMap::new();
        for r in call["records"].as_array().expect("records") {
            by_partition.entry(r["partition"].as_i64().expect("partition") as i32).or_default().push(from_json(r));
        }
        for (partition, mut records) in by_partition {
            let client = self.partition(topic, partition).await?;
            // All records of a call become one batch: large ones go alone.
            let large = records.iter().any(|r| r.approximate_size() > 100_000);
            while !records.is_empty() {
                let rest = records.split_off(if large { 1 } else { records.len() });
                client.produce(std::mem::replace(&mut records, rest), codec).await?;
            }
        }
        Ok(Value::Null)
    }

    async fn read(&self, topic: &str, call: &Value) -> Answer {
        let partition = call["partition"].as_i64().expect("partition") as i32;
        let client = self.partition(topic, partition).await?;
        let mut offset = call["offset"].as_i64().expect("offset");
        if !call["time"].is_null() {
            offset = client.get_offset(OffsetAt::Timestamp(time(&call["time"]))).await?;
        }
        let mut out = vec![];
        while (out.len() as u64) < call["n"].as_u64().expect("n") {
            let (records, _) = client.fetch_records(offset, 1..4_000_000, 100).await?;
            for r in records {
                offset = r.offset + 1;
                out.push(to_json(partition, &r));
            }
        }
        Ok(json!(out))
    }

    async fn handle(&self, call: &Value) -> Answer {
        let topic = call["topic"].as_str().unwrap_or_default();
        match call["op"].as_str().unwrap_or_default() {
            "produce" => return self.produce(topic, call).await,
            "read" => return self.read(topic, call).await,
            "create" => {
                let partitions = call["partitions"].as_i64().expect("partitions") as i32;
                self.client.controller_client()?.create_topic(topic, partitions, 1, TIMEOUT_MS).await?;
            }
            "partitions" => {
                for t in self.client.list_topics().await? {
                    if t.name == topic {
                        return Ok(json!(t.partitions.len()));
                    }
                }
                self.partition(topic, 0).await?; // the broker's answer about one topic
            }
            "topics" => return Ok(self.client.list_topics().await?.into_iter().map(|t| t.name).collect()),
            "truncate" => {
                let partition = call["partition"].as_i64().expect("partition") as i32;
                self.partition(topic, partition).await?.delete_records(call["before"].as_i64().expect("before"), TIMEOUT_MS).await?;
            }
            "remove" => self.client.controller_client()?.delete_topic(topic, TIMEOUT_MS).await?,
            op => panic!("no call {op}"),
        }
        Ok(Value::Null)
    }
}

// VERSION is that of rskafka in Cargo.toml.
const VERSION: &str = env!("RSKAFKA_VERSION");

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1);
    let (address, name) = (args.next().expect("address"), args.next().expect("name"));
    let backoff = BackoffConfig { deadline: Some(Duration::from_secs(20)), ..Default::default() };
    let client = ClientBuilder::new(vec![address]).client_id(name).backoff_config(backoff).build().await.expect("connect");
    let program = Program { client };
    println!("{}", json!({ "version": VERSION }));
    for line in std::io::stdin().lock().lines() {
        let call: Value = serde_json::from_str(&line.expect("input")).expect("json");
        let mut answer = json!({ "id": call["id"] });
        match program.handle(&call).await {
            Ok(result) => answer["result"] = result,
            Err(e) => {
                answer["error"] = json!(e.to_string());
                if let Error::ServerError { protocol_error, .. } = e {
                    answer["code"] = json!(code(protocol_error));
                }
            }
        }
        println!("{answer}");
    }
}
