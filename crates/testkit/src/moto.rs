//! moto, the AWS simulator that others have written: EC2, Auto Scaling and S3 on one port.
//!
//! Its instance metadata service does not say how long a session token lives, so no SDK can use it:
//! [`FakeEc2`](crate::FakeEc2) has one that does.
//!
//! It takes any credentials. What a test needs to set up is here, in the Query and REST forms of AWS; what is under
//! test goes through the real SDK.

use std::net::Ipv4Addr;

use reqwest::Method;

use crate::assets;
use crate::process::{Process, Program};
use crate::server::Server;

/// The region of its instances.
pub const REGION: &str = "us-east-1";

/// A running moto. It ends when this is dropped.
#[derive(Debug)]
pub struct Moto(Server);

/// An instance to launch.
#[derive(Clone, Debug, Default)]
pub struct Launch<'a> {
    /// Its tags.
    pub tags: Vec<(&'a str, &'a str)>,
    /// True if it is a spot instance.
    pub spot: bool,
    /// The zone; the first one of the region when empty.
    pub zone: &'a str,
    /// The private address, which gives the private DNS name; any when empty.
    pub address: &'a str,
}

/// An instance that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launched {
    /// `i-…`
    pub id: String,
    /// The private DNS name: what its Node is called.
    pub name: String,
    /// The private address.
    pub address: String,
    /// The zone.
    pub zone: String,
}

impl Launched {
    /// The providerID of its Node.
    #[must_use]
    pub fn provider_id(&self) -> String {
        format!("aws:///{}/{}", self.zone, self.id)
    }
}

impl Moto {
    /// Starts one without anything in it, and waits until it answers.
    ///
    /// # Panics
    /// When moto is not installed, with the line that installs it; when it does not come up, with its log.
    pub async fn start() -> Self {
        Self::start_on(Ipv4Addr::LOCALHOST).await
    }

    /// The same on another address of this machine: where real nodes reach it.
    pub async fn start_on(address: Ipv4Addr) -> Self {
        let host = address.to_string();
        let program = |port: u16| Program::new(assets::moto_server()).args(["-H", &host, "-p", &port.to_string()]);
        Self(Server::start(address, "moto", "/moto-api/data.json", program).await)
    }

    /// Returns the endpoint of EC2, S3 and all others.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.0.endpoint
    }

    /// The process, to pause, kill and start it again; what it held is lost when it ends.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.0.process
    }

    /// Returns the environment with which a process reaches it through the SDK.
    #[must_use]
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT_URL", self.0.endpoint.clone()),
            ("AWS_REGION", REGION.to_owned()),
            ("AWS_ACCESS_KEY_ID", "AKIDMOTO".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "moto-secret".to_owned()),
            ("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
        ]
    }

    /// Launches an instance; it runs when this returns.
    pub async fn launch(&self, launch: &Launch<'_>) -> Launched {
        let mut form = vec![
            ("ImageId".to_owned(), "ami-12c6146b".to_owned()),
            ("MinCount".to_owned(), "1".to_owned()),
            ("MaxCount".to_owned(), "1".to_owned()),
        ];
        if launch.spot {
            form.push(("InstanceMarketOptions.MarketType".to_owned(), "spot".to_owned()));
        }
        if !launch.zone.is_empty() {
            form.push(("Placement.AvailabilityZone".to_owned(), launch.zone.to_owned()));
        }
        if !launch.address.is_empty() {
            form.push(("PrivateIpAddress".to_owned(), launch.address.to_owned()));
        }
        if !launch.tags.is_empty() {
            form.push(("TagSpecification.1.ResourceType".to_owned(), "instance".to_owned()));
        }
        for (nth, (key, value)) in (1..).zip(&launch.tags) {
            form.push((format!("TagSpecification.1.Tag.{nth}.Key"), (*key).to_owned()));
            form.push((format!("TagSpecification.1.Tag.{nth}.Value"), (*value).to_owned()));
        }
        let xml = self.ec2("RunInstances", &form).await;
        let of = |element: &str| {
            text_of(&xml, element)
                .unwrap_or_else(|| panic!("no {element} in {xml}"))
                .to_owned()
        };
        Launched {
            id: of("instanceId"),
            name: of("privateDnsName"),
            address: of("privateIpAddress"),
            zone: of("availabilityZone"),
        }
    }

    /// Terminates an instance.
    pub async fn terminate(&self, id: &str) {
        self.ec2("TerminateInstances", &[("InstanceId.1".to_owned(), id.to_owned())])
            .await;
    }

    /// Sets a tag of an instance.
    pub async fn tag(&self, id: &str, key: &str, value: &str) {
        let form = [("ResourceId.1", id), ("Tag.1.Key", key), ("Tag.1.Value", value)];
        self.ec2(
            "CreateTags",
            &form.map(|(key, value)| (key.to_owned(), value.to_owned())),
        )
        .await;
    }

    /// Any call of EC2's Query API; returns the XML of its answer.
    pub async fn ec2(&self, action: &str, form: &[(String, String)]) -> String {
        self.query("ec2", "2016-11-15", action, form).await
    }

    /// Any call of Auto Scaling's Query API; returns the XML of its answer.
    pub async fn autoscaling(&self, action: &str, form: &[(String, String)]) -> String {
        self.query("autoscaling", "2011-01-01", action, form).await
    }

    async fn query(&self, service: &str, version: &str, action: &str, form: &[(String, String)]) -> String {
        let fixed = [("Action", action), ("Version", version)];
        let fixed = fixed.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
        let pairs = fixed.chain(form.iter().cloned());
        let body: String = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs(pairs)
            .finish();
        self.call(Method::POST, "/", service, body.into_bytes()).await
    }

    /// Makes an empty bucket.
    pub async fn create_bucket(&self, bucket: &str) {
        self.call(Method::PUT, &format!("/{bucket}"), "s3", Vec::new()).await;
    }

    /// Writes an object.
    pub async fn put_object(&self, bucket: &str, key: &str, content: impl Into<Vec<u8>>) {
        self.call(Method::PUT, &format!("/{bucket}/{key}"), "s3", content.into())
            .await;
    }

    /// Deletes an object.
    pub async fn delete_object(&self, bucket: &str, key: &str) {
        self.call(Method::DELETE, &format!("/{bucket}/{key}"), "s3", Vec::new())
            .await;
    }

    /// moto reads from the signature which service is meant, and does not check it.
    async fn call(&self, method: Method, path: &str, service: &str, body: Vec<u8>) -> String {
        let scope = format!("AKIDMOTO/20260101/{REGION}/{service}/aws4_request");
        // Of a form moto keeps the fields and not the text, also when it is meant for S3.
        let content_type = if service == "s3" {
            "binary/octet-stream"
        } else {
            "application/x-www-form-urlencoded; charset=utf-8"
        };
        let request = self
            .0
            .http
            .request(method.clone(), format!("{}{path}", self.0.endpoint))
            .header(
                "authorization",
                format!("AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0"),
            )
            .header("content-type", content_type)
            .body(body);
        let answer = request
            .send()
            .await
            .unwrap_or_else(|error| panic!("{method} {path} of {service}: {error}"));
        let status = answer.status();
        let text = answer.text().await.expect("a text");
        assert!(status.is_success(), "{method} {path} of {service}: {status}\n{text}");
        text
    }
}

/// The text of the first element of this name.
#[must_use]
pub fn text_of<'a>(xml: &'a str, element: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{element}>"))?;
    rest.split_once('<').map(|(text, _)| text)
}
