use serde_json::json;

use super::super::stored::StoredSecret;
use super::*;

fn source(provider: &str, address: &str, credentials: Value) -> Source {
    Source {
        provider: provider.to_owned(),
        serveraddress: address.to_owned(),
        email: String::new(),
        credentials: serde_json::from_value(credentials).unwrap(),
    }
}

fn login(source: &Source) -> Login {
    match source.credential().unwrap() {
        Credential::Password(login) => login,
        Credential::Ecr(_) => panic!("a password"),
    }
}

#[test]
fn each_provider_becomes_what_it_requires() {
    let password = json!({"username": "robot$team", "password": "hunter2"});
    for (provider, address, text) in [
        ("azure", "x.azurecr.io", "x.azurecr.io"),
        ("dockerhub", "", DOCKER_HUB),
        ("DockerHub", "docker.io", "docker.io"),
        ("dockerhub", "registry-1.docker.io", DOCKER_HUB),
        ("private", "https://hub.docker.com/r/team", DOCKER_HUB),
        ("quay", "", "quay.io"),
        ("private", "ghcr.io", "ghcr.io"),
        ("private", "registry.gitlab.com", "registry.gitlab.com"),
        ("private", "https://harbor.example.com/", "https://harbor.example.com/"),
    ] {
        let login = login(&source(provider, address, password.clone()));
        assert_eq!((login.address.key(), login.username.expose()), (text, "robot$team"));
        assert_eq!(
            (login.password.expose(), login.old_form),
            ("hunter2", false),
            "{provider}"
        );
    }
    let key = r#"{"type": "service_account", "private_key": "hunter2"}"#;
    for credentials in [json!({"key": key}), json!({"username": "_json_key", "password": key})] {
        let login = login(&source("google_registry", "https://gcr.io", credentials));
        assert_eq!((login.username.expose(), login.password.expose()), ("_json_key", key));
        assert!(login.old_form);
    }
    // The fields of the key as credentials, as clients of the original service store them.
    let key = json!({"type": "service_account", "client_email": "a@b.example.com", "private_key": "hunter2\n", "private_key_id": "7"});
    let mut named = key.clone();
    named["username"] = json!("_json_key");
    for credentials in [key.clone(), named] {
        let login = login(&source("google_registry", "https://gcr.io", credentials));
        let password: Value = serde_json::from_str(login.password.expose()).unwrap();
        assert_eq!(
            (login.username.expose(), password, login.old_form),
            ("_json_key", key.clone(), true)
        );
    }
    for credentials in [
        json!({"access_key_id": "AKID", "secret_access_key": "hunter2", "region": "eu-west-1"}),
        json!({"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "hunter2", "aws_region": "eu-west-1"}),
        json!({"accessKeyId": "AKID", "secretAccessKey": "hunter2", "region": "eu-west-1"}),
    ] {
        let Credential::Ecr(login) = source("amazon_ec2_registry", "", credentials).credential().unwrap() else {
            panic!("a key of AWS");
        };
        assert_eq!(
            (login.region.as_str(), login.access_key_id.expose()),
            ("eu-west-1", "AKID")
        );
        assert_eq!((login.secret_access_key.expose(), login.address), ("hunter2", None));
    }
}

#[test]
fn the_region_of_ecr_is_that_of_its_address() {
    let bad = "in the region";
    for (address, given, expected) in [
        ("", None, Ok(DEFAULT_REGION)),
        ("", Some("eu-west-1"), Ok("eu-west-1")),
        ("123456789012.dkr.ecr.eu-west-1.amazonaws.com", None, Ok("eu-west-1")),
        (
            "https://123456789012.DKR.ecr.EU-west-1.amazonaws.com/team",
            None,
            Ok("eu-west-1"),
        ),
        (
            "123456789012.dkr.ecr.eu-west-1.amazonaws.com",
            Some("eu-west-1"),
            Ok("eu-west-1"),
        ),
        (
            "123456789012.dkr.ecr.eu-west-1.amazonaws.com",
            Some(""),
            Ok("eu-west-1"),
        ),
        (
            "123456789012.dkr.ecr.eu-west-1.amazonaws.com",
            Some("us-east-1"),
            Err(bad),
        ),
        (
            "123456789012.dkr.ecr-fips.us-gov-west-1.amazonaws.com",
            None,
            Ok("us-gov-west-1"),
        ),
        (
            "123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn",
            None,
            Ok("cn-north-1"),
        ),
        (
            "123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn",
            Some("cn-northwest-1"),
            Err(bad),
        ),
        (
            "123456789012.dkr.ecr.eusc-de-east-1.amazonaws.eu",
            Some("eu-west-1"),
            Err(bad),
        ),
        ("123456789012.dkr-ecr.ap-south-2.on.aws", None, Ok("ap-south-2")),
        ("123456789012.dkr-ecr.ap-south-2.on.aws", Some("ap-south-1"), Err(bad)),
        (
            "123456789012.dkr-ecr.cn-north-1.on.amazonwebservices.com.cn",
            None,
            Ok("cn-north-1"),
        ),
        (
            "vpce-1a2b.dkr.ecr.eu-west-1.vpce.amazonaws.com",
            Some("us-east-1"),
            Err(bad),
        ),
        // A name of others before ECR: the credentials say the region.
        ("ecr.eu-west-1.example.com", Some("us-east-1"), Ok("us-east-1")),
        ("registry.example.com", Some("eu-west-1"), Ok("eu-west-1")),
        ("registry.example.com", None, Ok(DEFAULT_REGION)),
        ("10.0.0.7:5000", None, Ok(DEFAULT_REGION)),
        ("public.ecr.aws", None, Err("public.ecr.aws")),
        (
            "https://public.ecr.aws/team",
            Some("us-east-1"),
            Err("delete the registry"),
        ),
    ] {
        let mut key = json!({"access_key_id": "AKID", "secret_access_key": "hunter2"});
        if let Some(given) = given {
            key["region"] = json!(given);
        }
        match (source("amazon_ec2_registry", address, key).credential(), expected) {
            (Ok(Credential::Ecr(login)), Ok(region)) => assert_eq!(login.region, region, "{address}"),
            (Err(error), Err(words)) => assert!(error.to_string().contains(words), "{address}: {error}"),
            (other, _) => panic!("{address} {given:?}: {other:?}"),
        }
    }
}

#[test]
fn what_cannot_be_used_is_refused_without_showing_it() {
    let good = json!({"username": "u", "password": "hunter2"});
    for (provider, address, credentials, words) in [
        (
            "private",
            "kube-system",
            good.clone(),
            "serveraddress is \"kube-system\"",
        ),
        ("private", "../", good.clone(), "serveraddress is \"../\""),
        (
            "private",
            "a.example.com\nb",
            good.clone(),
            "serveraddress is \"a.example.com\\nb\"",
        ),
        ("private", "", good.clone(), "serveraddress is \"\""),
        (
            "azure",
            "x.azurecr.io",
            json!({"password": "hunter2"}),
            "must have username",
        ),
        (
            "azure",
            "x.azurecr.io",
            json!({"username": "u", "password": ""}),
            "must have password",
        ),
        (
            "azure",
            "x.azurecr.io",
            json!({"username": "u:hunter2", "password": "p"}),
            "without ':'",
        ),
        (
            "google_registry",
            "gcr.io",
            json!({"username": "hunter2"}),
            "the JSON key",
        ),
        (
            "google_registry",
            "gcr.io",
            json!({"type": "service_account", "private_key": "hunter2"}),
            "the JSON key",
        ),
        (
            "amazon_ec2_registry",
            "",
            json!({"access_key_id": "hunter2"}),
            "must have secret_access_key",
        ),
        (
            "amazon_ec2_registry",
            "",
            json!({"access_key_id": "a", "secret_access_key": "hunter2", "region": "us-east-1.evil.example.com/"}),
            "the region",
        ),
        (
            "dockerhub",
            "www.docker.com",
            good.clone(),
            "serveraddress is www.docker.com, which is a host of Docker without images: write https://index.docker.io/v1/",
        ),
        ("dockerhub", "https://docker.com/", good.clone(), "write https://index"),
        ("dockerhub", "login.docker.com", good.clone(), "write https://index"),
        ("dockerhub", "Cloud.docker.com", good.clone(), "write https://index"),
        ("dockerhub", "registry.docker.io", good.clone(), "write https://index"),
        ("private", "docker.io/acme/app:1.0", good.clone(), "the tag of an image"),
        ("jfrog", "x.example.com", good.clone(), "provider is \"jfrog\""),
    ] {
        let source = source(provider, address, credentials);
        let error = source.credential().unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert!(
            !error.contains("hunter2") && !format!("{source:?}").contains("hunter2"),
            "{error}"
        );
    }
}

fn data(secret: StoredSecret) -> SecretData {
    secret.data.0.unwrap()
}

#[test]
fn the_secret_of_the_mirror_is_read_and_a_broken_one_is_not_shown() {
    let secret = |data: Value| -> StoredSecret {
        let encoded: serde_json::Map<_, _> = data
            .as_object()
            .unwrap()
            .iter()
            .map(|(key, text)| {
                (
                    key.clone(),
                    json!(k8s_openapi::ByteString(text.as_str().unwrap().into())),
                )
            })
            .collect();
        serde_json::from_value(json!({"metadata": {"name": "registry-r"}, "type": "Opaque", "data": encoded})).unwrap()
    };
    let whole = json!({"provider": "quay", "serveraddress": "quay.io", "email": "a@example.com",
        "credentials.json": "{\"username\":\"u\",\"password\":\"hunter2\"}"});
    let read = Source::of_data(&data(secret(whole.clone()))).unwrap();
    assert_eq!((read.provider.as_str(), read.email.as_str()), ("quay", "a@example.com"));
    assert!(!format!("{:?}", secret(whole.clone())).contains("hunter2"));
    for (key, value) in [
        ("credentials.json", json!("hunter2")),
        ("credentials.json", json!("{\"password\": {\"a\": \"hunter2\"}}")),
        ("credentials.json", json!("[\"hunter2\"]")),
    ] {
        let mut broken = whole.clone();
        broken[key] = value;
        let error = Source::of_data(&data(secret(broken))).unwrap_err();
        assert!(!error.to_string().contains("hunter2") && !format!("{error:?}").contains("hunter2"));
    }
    let without = |key: &str| {
        let mut data = whole.clone();
        data.as_object_mut().unwrap().remove(key);
        Source::of_data(&self::data(secret(data)))
    };
    assert_eq!(without("provider"), Err(InvalidSource::Field("provider")));
    assert_eq!(without("serveraddress"), Err(InvalidSource::Field("serveraddress")));
    assert_eq!(without("credentials.json"), Err(InvalidSource::Credentials));
    assert!(without("email").is_ok());
}

#[test]
fn a_registry_with_any_spec_can_be_read_inline() {
    let spec = json!({"id": "r", "provider": "quay", "serveraddress": "quay.io",
        "credentials": {"username": "u", "password": "hunter2"}});
    assert_eq!(Source::of_spec(&spec).unwrap().provider, "quay");
    for broken in [
        json!(null),
        json!("hunter2"),
        json!({"id": "r", "credentials": "hunter2"}),
    ] {
        let error = Source::of_spec(&broken).unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }
}
