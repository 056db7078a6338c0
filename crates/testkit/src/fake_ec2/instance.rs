//! An instance as a test describes it, and as `DescribeInstances` writes it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::Ipv4Addr;

use super::group::{FakeMember, member};

/// An instance of the fake. What is `None` or empty is left out of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FakeInstance {
    pub(super) id: String,
    pub(super) state: Option<String>,
    pub(super) zone: Option<String>,
    pub(super) name: String,
    pub(super) addresses: Vec<String>,
    pub(super) v6: Vec<String>,
    pub(super) interfaces: Vec<(String, String)>,
    pub(super) lifecycle: Option<String>,
    pub(super) tags: BTreeMap<String, String>,
}

/// A running on-demand instance in `us-east-1a`, named after its address 10.0.0.1, without tags.
#[must_use]
pub fn instance(id: &str) -> FakeInstance {
    FakeInstance {
        id: id.to_owned(),
        state: Some("running".to_owned()),
        zone: Some("us-east-1a".to_owned()),
        name: "ip-10-0-0-1.ec2.internal".to_owned(),
        addresses: vec!["10.0.0.1".to_owned()],
        v6: Vec::new(),
        interfaces: Vec::new(),
        lifecycle: None,
        tags: BTreeMap::new(),
    }
}

impl FakeInstance {
    /// The `number`th of a fleet: id, zone (three in turn), address and name follow from it.
    #[must_use]
    pub fn numbered(number: u32) -> Self {
        let zone = ['a', 'b', 'c'][number as usize % 3];
        let [_, b, c, d] = number.to_be_bytes();
        instance(&format!("i-{number:017x}"))
            .zone(&format!("us-east-1{zone}"))
            .ip(&Ipv4Addr::new(10, b, c, d).to_string())
    }

    /// The zone.
    #[must_use]
    pub fn zone(self, zone: &str) -> Self {
        Self {
            zone: some(zone),
            ..self
        }
    }

    /// The state: `pending`, `running`, `shutting-down`, `terminated`, `stopping`, `stopped`. Empty: left out.
    #[must_use]
    pub fn state(self, state: &str) -> Self {
        Self {
            state: some(state),
            ..self
        }
    }

    /// The private DNS name.
    #[must_use]
    pub fn name(self, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..self
        }
    }

    /// The primary private address, and the private DNS name that EC2 derives from it.
    #[must_use]
    pub fn ip(self, address: &str) -> Self {
        let name = format!("ip-{}.ec2.internal", address.replace('.', "-"));
        Self {
            addresses: vec![address.to_owned()],
            name,
            ..self
        }
    }

    /// One more private address of the first interface, as a CNI takes for pods.
    #[must_use]
    pub fn secondary_ip(mut self, address: &str) -> Self {
        self.addresses.push(address.to_owned());
        self
    }

    /// An IPv6 address of the first interface.
    #[must_use]
    pub fn ipv6(mut self, address: &str) -> Self {
        self.v6.push(address.to_owned());
        self
    }

    /// One more interface, with its primary address and private DNS name.
    #[must_use]
    pub fn interface(mut self, address: &str, name: &str) -> Self {
        self.interfaces.push((address.to_owned(), name.to_owned()));
        self
    }

    /// `spot`, `scheduled`, …; on demand without it.
    #[must_use]
    pub fn lifecycle(self, lifecycle: &str) -> Self {
        Self {
            lifecycle: some(lifecycle),
            ..self
        }
    }

    /// One more tag.
    #[must_use]
    pub fn tag(mut self, key: &str, value: &str) -> Self {
        self.tags.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Without this tag.
    #[must_use]
    pub fn without_tag(mut self, key: &str) -> Self {
        self.tags.remove(key);
        self
    }

    /// The tags that kOps gives an instance of this cluster and group.
    #[must_use]
    pub fn kops(self, cluster: &str, group: &str) -> Self {
        let name = format!("{group}.{cluster}");
        self.tag("KubernetesCluster", cluster)
            .tag(&format!("kubernetes.io/cluster/{cluster}"), "owned")
            .tag("kops.k8s.io/instancegroup", group)
            .tag("Name", &name)
            .tag("aws:autoscaling:groupName", &name)
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its private DNS name.
    #[must_use]
    pub fn node_name(&self) -> &str {
        &self.name
    }

    /// Its primary private address.
    #[must_use]
    pub fn address(&self) -> &str {
        self.addresses.first().map_or("", String::as_str)
    }

    /// The providerID of its Node.
    #[must_use]
    pub fn provider_id(&self) -> String {
        format!("aws:///{}/{}", self.zone.as_deref().unwrap_or("us-east-1a"), self.id)
    }

    /// It, as its Auto Scaling group lists it, in service.
    #[must_use]
    pub fn member(&self) -> FakeMember {
        member(&self.id).zone(self.zone.as_deref().unwrap_or_default())
    }

    pub(super) fn has_tag(&self, key: &str, values: &[String]) -> bool {
        self.tags.get(key).is_some_and(|value| values.contains(value))
    }

    /// As an item of `reservationSet`, with the bulk that EC2's answers have.
    pub(super) fn xml(&self) -> String {
        let mut xml = String::with_capacity(4096);
        let suffix = self.id.trim_start_matches("i-");
        let _ = write!(
            xml,
            "<item><reservationId>r-{suffix}</reservationId><ownerId>123456789012</ownerId><groupSet/><instancesSet><item>\
             <instanceId>{}</instanceId><imageId>ami-0abcdef1234567890</imageId>",
            escaped(&self.id)
        );
        if let Some(state) = &self.state {
            let _ = write!(
                xml,
                "<instanceState><code>16</code><name>{}</name></instanceState>",
                escaped(state)
            );
        }
        let _ = write!(
            xml,
            "<privateDnsName>{}</privateDnsName><dnsName/><reason/><keyName>kops</keyName><amiLaunchIndex>0</amiLaunchIndex>\
             <productCodes/><instanceType>m6i.large</instanceType><launchTime>2026-01-01T00:00:00.000Z</launchTime>",
            escaped(&self.name)
        );
        if let Some(zone) = &self.zone {
            let _ = write!(
                xml,
                "<placement><availabilityZone>{}</availabilityZone><groupName/><tenancy>default</tenancy></placement>",
                escaped(zone)
            );
        }
        xml.push_str(
            "<monitoring><state>disabled</state></monitoring><subnetId>subnet-1</subnetId><vpcId>vpc-1</vpcId>",
        );
        if let Some(address) = self.addresses.first() {
            let _ = write!(xml, "<privateIpAddress>{}</privateIpAddress>", escaped(address));
        }
        xml.push_str(BULK);
        if let Some(lifecycle) = &self.lifecycle {
            let _ = write!(xml, "<instanceLifecycle>{}</instanceLifecycle>", escaped(lifecycle));
        }
        self.write_tags(&mut xml);
        self.write_interfaces(&mut xml);
        xml.push_str("</item></instancesSet></item>");
        xml
    }

    fn write_tags(&self, xml: &mut String) {
        xml.push_str("<tagSet>");
        for (key, value) in &self.tags {
            let _ = write!(
                xml,
                "<item><key>{}</key><value>{}</value></item>",
                escaped(key),
                escaped(value)
            );
        }
        xml.push_str("</tagSet>");
    }

    fn write_interfaces(&self, xml: &mut String) {
        xml.push_str("<networkInterfaceSet>");
        if let Some(address) = self.addresses.first() {
            write_interface(xml, 0, address, &self.name, &self.addresses, &self.v6);
        }
        for (index, (address, name)) in self.interfaces.iter().enumerate() {
            write_interface(xml, index + 1, address, name, std::slice::from_ref(address), &[]);
        }
        xml.push_str("</networkInterfaceSet>");
    }
}

/// An instance with its text, which is written once and served thousands of times.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    pub(super) instance: FakeInstance,
    pub(super) xml: String,
}

impl Listed {
    pub(super) fn new(instance: FakeInstance) -> Self {
        let xml = instance.xml();
        Self { instance, xml }
    }
}

const BULK: &str = "<blockDeviceMapping><item><deviceName>/dev/xvda</deviceName><ebs><volumeId>vol-0123456789abcdef0</volumeId>\
    <status>attached</status><attachTime>2026-01-01T00:00:00.000Z</attachTime><deleteOnTermination>true</deleteOnTermination>\
    </ebs></item></blockDeviceMapping><architecture>x86_64</architecture><rootDeviceType>ebs</rootDeviceType>\
    <rootDeviceName>/dev/xvda</rootDeviceName><virtualizationType>hvm</virtualizationType><hypervisor>xen</hypervisor>\
    <iamInstanceProfile><arn>arn:aws:iam::123456789012:instance-profile/nodes</arn><id>AIPAFAKE</id></iamInstanceProfile>\
    <ebsOptimized>true</ebsOptimized><enaSupport>true</enaSupport><cpuOptions><coreCount>1</coreCount>\
    <threadsPerCore>2</threadsPerCore></cpuOptions><metadataOptions><state>applied</state><httpTokens>required</httpTokens>\
    <httpPutResponseHopLimit>1</httpPutResponseHopLimit><httpEndpoint>enabled</httpEndpoint></metadataOptions>";

fn write_interface(xml: &mut String, index: usize, address: &str, name: &str, all: &[String], v6: &[String]) {
    let _ = write!(
        xml,
        "<item><networkInterfaceId>eni-{index}</networkInterfaceId><subnetId>subnet-1</subnetId><vpcId>vpc-1</vpcId>\
         <description/><ownerId>123456789012</ownerId><status>in-use</status><macAddress>02:00:00:00:00:01</macAddress>\
         <privateIpAddress>{}</privateIpAddress><privateDnsName>{}</privateDnsName><sourceDestCheck>false</sourceDestCheck>\
         <groupSet><item><groupId>sg-1</groupId><groupName>nodes</groupName></item></groupSet><attachment>\
         <attachmentId>eni-attach-{index}</attachmentId><deviceIndex>{index}</deviceIndex><status>attached</status>\
         <deleteOnTermination>true</deleteOnTermination></attachment><privateIpAddressesSet>",
        escaped(address),
        escaped(name)
    );
    for (nth, address) in all.iter().enumerate() {
        let dashed = address.replace('.', "-");
        let _ = write!(
            xml,
            "<item><privateIpAddress>{}</privateIpAddress><privateDnsName>ip-{}.ec2.internal</privateDnsName>\
             <primary>{}</primary></item>",
            escaped(address),
            escaped(&dashed),
            nth == 0
        );
    }
    xml.push_str("</privateIpAddressesSet><ipv6AddressesSet>");
    for address in v6 {
        let _ = write!(xml, "<item><ipv6Address>{}</ipv6Address></item>", escaped(address));
    }
    xml.push_str("</ipv6AddressesSet></item>");
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// Text of XML 1.0, in which control characters cannot stand but as references.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            c if c.is_control() => {
                let _ = write!(safe, "&#{};", u32::from(c));
            }
            c => safe.push(c),
        }
    }
    safe
}
