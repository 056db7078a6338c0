use minisign::KeyPair;
use serde_json::{Value, json};
use tidewaiter_api::PluginInventorySpec;
use tidewaiter_cloud::signed::{SigningKey, manifests_digest, sign};

use super::super::*;

const CLUSTER: &str = "22222222-2222-4222-8222-222222222222";
const NOW: i64 = 1_790_000_000;

fn plugin(version: &str) -> PluginSpec {
    PluginSpec {
        id: "cccccccc-0000-4000-8000-000000000001".to_owned(),
        added_at: String::new(),
        description: String::new(),
        type_: "metrics".to_owned(),
        version: version.to_owned(),
        implementation: "prometheus".to_owned(),
    }
}

fn signed(pair: &KeyPair, cluster: &str, version: &str, time: i64) -> Value {
    let mut sent = json!({"manifests": [[{"kind": "ConfigMap"}]], "version": version});
    let key = pair.sk.to_box(None).unwrap().into_string();
    let key = SigningKey::read(&key, || Err::<String, _>(SignatureError::Malformed)).unwrap();
    let plugin = plugin(version);
    let statement = Statement {
        cluster,
        plugin: &plugin.id,
        plugin_type: &plugin.type_,
        implementation: &plugin.implementation,
        version,
        digest: &manifests_digest(&sent),
    };
    sent["signature"] = json!(sign(&key, &statement, time).unwrap());
    sent
}

fn record(signed_at: Option<i64>) -> Record {
    Record::read(&PluginInventorySpec {
        signed_at,
        ..PluginInventorySpec::default()
    })
}

#[test]
fn only_the_newest_signature_of_a_trusted_key_counts() {
    let [old, new, stranger] = [(); 3].map(|()| KeyPair::generate_unencrypted_keypair().unwrap());
    let trust = |pairs: &[&KeyPair]| Trust {
        keys: pairs.iter().map(|pair| pair.pk.to_base64().parse().unwrap()).collect(),
        cluster: CLUSTER.to_owned(),
    };
    let both = trust(&[&old, &new]);
    let now = Timestamp::from_second(NOW).unwrap();
    let (earlier, later) = (NOW - 1_000, NOW - 500);
    let other_cluster = "22222222-2222-4222-8222-222222222223";
    let unsigned = json!({"manifests": [[{"kind": "ConfigMap"}]]});
    let mut changed = signed(&new, CLUSTER, "1.0.0", later);
    changed["jobs"] = json!({"post_apply": [{"kind": "Job"}]});
    for (sent, last, expected) in [
        (signed(&old, CLUSTER, "1.0.0", earlier), None, Ok(earlier)),
        // Another key, for the time of a rotation.
        (signed(&new, CLUSTER, "1.0.0", later), Some(earlier), Ok(later)),
        // The same one after a restart.
        (signed(&new, CLUSTER, "1.0.0", later), Some(later), Ok(later)),
        (
            signed(&old, CLUSTER, "1.0.0", earlier),
            Some(later),
            Err("sign them again"),
        ),
        (signed(&new, CLUSTER, "1.0.0", NOW + 301), None, Err("in the future")),
        (signed(&new, CLUSTER, "0.9.0", later), None, Err("not for this")),
        (signed(&new, other_cluster, "1.0.0", later), None, Err("not for this")),
        (signed(&stranger, CLUSTER, "1.0.0", later), None, Err("not trusted")),
        (changed, None, Err("not for this")),
        (unsigned.clone(), None, Err("are not signed")),
    ] {
        let found = both.verify(&plugin("1.0.0"), &Sent::from(&sent), &record(last), now);
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, Some(expected)),
            (Err(found), Err(words)) => {
                assert!(found.to_string().contains(words), "{found} does not contain {words}");
            }
            (found, expected) => panic!("{found:?} instead of {expected:?}"),
        }
    }
    // Without keys, nothing needs a signature.
    let none = trust(&[]).verify(&plugin("1.0.0"), &Sent::from(&unsigned), &record(None), now);
    assert_eq!(none.unwrap(), None);
    // A key that is taken out is not trusted any more.
    let found = trust(&[&new]).verify(
        &plugin("1.0.0"),
        &Sent::from(&signed(&old, CLUSTER, "1.0.0", later)),
        &record(None),
        now,
    );
    assert!(found.unwrap_err().to_string().contains("not trusted"));
}
