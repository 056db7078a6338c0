//! Tokens: which are accepted, and each reason for a rejection.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::EncodingKey;
use jsonwebtoken::crypto;
use rcgen::{KeyPair, PKCS_ECDSA_P384_SHA384, PKCS_RSA_SHA256};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::server::keys::signing::ACTIVATION_DELAY;

const ISSUER: &str = "https://cloud.example";
const ID: &str = "9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e";
const OTHER: &str = "11111111-6a0b-4c57-8d7e-1f2a3b4c5d6e";

fn at(seconds: i64) -> Timestamp {
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    start + SignedDuration::from_secs(seconds)
}

fn tokens() -> (TempDir, Tokens) {
    let folder = tempfile::tempdir().unwrap();
    let ring = KeyRing::create(folder.path(), at(0)).unwrap();
    (folder, Tokens::new(ISSUER, ring))
}

fn user() -> TokenUse {
    TokenUse::User(ID.parse().unwrap())
}

fn kubernetes() -> TokenUse {
    TokenUse::Kubernetes {
        user: ID.parse().unwrap(),
        cluster: OTHER.parse().unwrap(),
        teams: vec![ID.parse().unwrap(), OTHER.parse().unwrap()],
    }
}

fn uses() -> [TokenUse; 4] {
    let account = TokenUse::ServiceAccount(ID.parse().unwrap());
    [user(), account, TokenUse::Cluster(ID.parse().unwrap()), kubernetes()]
}

fn hour(token_use: TokenUse) -> Claims {
    Claims::new(token_use, at(0), SignedDuration::from_hours(1))
}

/// The claims of a user's token on the wire.
fn good() -> Value {
    serde_json::to_value(Wire::of(&hour(user()), ISSUER)).unwrap()
}

fn part(text: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(text)
}

fn header_of(tokens: &Tokens) -> Value {
    json!({"alg": "ES256", "typ": "JWT", "kid": tokens.ring.signer(at(0)).unwrap().id})
}

/// Signed with ES256 by this key, whatever the header contains.
fn signed_by(key: &EncodingKey, algorithm: Algorithm, header: &Value, claims: &str) -> String {
    let message = format!("{}.{}", part(header.to_string()), part(claims));
    let signature = crypto::sign(message.as_bytes(), key, algorithm).unwrap();
    format!("{message}.{signature}")
}

/// Signed with the ring's key.
fn signed(tokens: &Tokens, header: &Value, claims: &str) -> String {
    signed_by(
        &tokens.ring.signer(at(0)).unwrap().private,
        Algorithm::ES256,
        header,
        claims,
    )
}

fn verdict(tokens: &Tokens, token: &str) -> Result<Claims, TokenError> {
    tokens.verify(token, at(0), AcceptedUses::Any)
}

#[test]
fn what_was_signed_is_believed() {
    let (_folder, tokens) = tokens();
    for token_use in uses() {
        let claims = hour(token_use);
        let token = tokens.sign(&claims).unwrap();
        assert_eq!(tokens.verify(&token, at(0), AcceptedUses::Any), Ok(claims));
    }
    // The tests below change one thing in this token.
    let token = signed(&tokens, &header_of(&tokens), &good().to_string());
    assert!(verdict(&tokens, &token).is_ok());
}

#[test]
fn the_claims_are_those_of_the_contract() {
    let (_folder, tokens) = tokens();
    let claims = hour(kubernetes());
    let token = tokens.sign(&claims).unwrap();
    let parts: Vec<_> = token
        .split('.')
        .map(|part| URL_SAFE_NO_PAD.decode(part).unwrap())
        .collect();
    let header: Value = serde_json::from_slice(&parts[0]).unwrap();
    assert_eq!(header, header_of(&tokens));
    let written: Value = serde_json::from_slice(&parts[1]).unwrap();
    let expected = json!({
        "iss": ISSUER,
        "sub": format!("containership.io/user_id#{ID}"),
        "aud": format!("https://containership.io/clusters/{OTHER}"),
        "iat": at(0).as_second(), "nbf": at(0).as_second(), "exp": at(3600).as_second(),
        "jti": claims.id.to_string(),
        "groups": [format!("containership.io/team_id#{ID}"), format!("containership.io/team_id#{OTHER}")],
        "token_use": "kubernetes",
    });
    assert_eq!(written, expected);
    let cluster = TokenUse::Cluster(ID.parse().unwrap());
    assert_eq!(cluster.subject(), format!("containership.io/cluster_id#{ID}"));
    assert_eq!(
        (cluster.audience(ISSUER), user().audience(ISSUER)),
        (ISSUER.to_owned(), ISSUER.to_owned())
    );
}

#[test]
fn each_token_has_an_id_of_its_own_and_whole_seconds() {
    let now = at(0) + SignedDuration::from_millis(900);
    let claims = Claims::new(user(), now, SignedDuration::from_millis(600));
    assert_eq!(
        (claims.issued_at, claims.not_before, claims.expires_at),
        (at(0), at(0), at(1))
    );
    assert_ne!(claims.id, Claims::new(user(), now, SignedDuration::ZERO).id);
    let endless = Claims::new(user(), now, SignedDuration::MAX);
    assert!(endless.expires_at > at(1_000_000));
}

#[test]
fn a_token_for_a_kube_apiserver_is_not_for_this_api() {
    let (_folder, tokens) = tokens();
    for (token_use, expected) in uses().into_iter().zip([true, true, true, false]) {
        let token = tokens.sign(&hour(token_use.clone())).unwrap();
        let verdict = tokens.verify(&token, at(0), AcceptedUses::Api);
        assert_eq!(verdict.is_ok(), expected, "{token_use:?}: {verdict:?}");
        assert!(expected || verdict == Err(TokenError::Audience), "{verdict:?}");
    }
}

#[test]
fn its_time_has_two_ends() {
    let (_folder, tokens) = tokens();
    let token = tokens.sign(&hour(user())).unwrap();
    let just_before = |seconds| at(seconds) - SignedDuration::from_nanos(1);
    let table = [
        (at(0), Ok(())),
        (at(-60), Ok(())),
        (just_before(-60), Err(TokenError::NotYetValid)),
        (just_before(3600), Ok(())),
        (at(3600), Err(TokenError::Expired)),
        (at(3601), Err(TokenError::Expired)),
    ];
    for (now, expected) in table {
        assert_eq!(
            tokens.verify(&token, now, AcceptedUses::Api).map(|_| ()),
            expected,
            "at {now}"
        );
    }
    for claim in ["nbf", "iat"] {
        let mut claims = good();
        claims[claim] = at(61).as_second().into();
        let token = signed(&tokens, &header_of(&tokens), &claims.to_string());
        assert_eq!(verdict(&tokens, &token), Err(TokenError::NotYetValid), "{claim}");
    }
}

#[test]
fn every_claim_must_be_there_and_of_its_form() {
    let (_folder, tokens) = tokens();
    let header = header_of(&tokens);
    for claim in ["iss", "sub", "aud", "iat", "nbf", "exp", "jti", "token_use"] {
        let mut claims = good();
        claims.as_object_mut().unwrap().remove(claim);
        let token = signed(&tokens, &header, &claims.to_string());
        assert_eq!(verdict(&tokens, &token), Err(TokenError::Claims), "without {claim}");
        for value in [Value::Null, json!({}), json!([]), json!(true)] {
            claims[claim] = value;
            let token = signed(&tokens, &header, &claims.to_string());
            assert_eq!(verdict(&tokens, &token), Err(TokenError::Claims), "{claims}");
        }
    }
    let table = [
        ("exp", json!("2026-01-01T01:00:00Z")),
        ("exp", json!(at(3600).as_second().to_string())),
        ("exp", json!(1.8e9)),
        ("exp", json!(i64::MAX)),
        ("sub", json!(ID)),
        ("sub", json!(format!("containership.io/cluster_id#{ID}"))),
        ("sub", json!(format!("containership.io/user_id#{ID}/../{OTHER}"))),
        ("jti", json!("7")),
        ("token_use", json!("root")),
        ("token_use", json!("cluster")),
        ("groups", json!("containership.io/team_id#")),
        ("aud", json!([ISSUER])),
        (
            "aud",
            json!([ISSUER, format!("https://containership.io/clusters/{OTHER}")]),
        ),
    ];
    for (claim, value) in table {
        let mut claims = good();
        claims[claim] = value;
        let token = signed(&tokens, &header, &claims.to_string());
        assert_eq!(verdict(&tokens, &token), Err(TokenError::Claims), "{claims}");
    }
    // The claim twice, of which some parsers use the first and others the last.
    let twice = good().to_string().replacen('{', &format!(r#"{{"aud":"{ISSUER}","#), 1);
    let token = signed(&tokens, &header, &twice);
    assert_eq!(verdict(&tokens, &token), Err(TokenError::Claims));
}

#[test]
fn a_use_and_its_audience_go_together() {
    let (_folder, tokens) = tokens();
    let cluster = format!("https://containership.io/clusters/{OTHER}");
    let table = [
        ("user", "https://other.example".to_owned(), TokenError::Audience),
        ("user", format!("{ISSUER}/"), TokenError::Audience),
        ("user", cluster.clone(), TokenError::Audience),
        ("user", String::new(), TokenError::Audience),
        // The audience of a kube-apiserver must name a cluster.
        ("kubernetes", ISSUER.to_owned(), TokenError::Claims),
        ("kubernetes", format!("{cluster}/"), TokenError::Claims),
        ("kubernetes", cluster.to_uppercase(), TokenError::Claims),
        (
            "kubernetes",
            format!("https://containership.io/clusters/{}", ID.to_uppercase()),
            TokenError::Audience,
        ),
    ];
    for (token_use, audience, expected) in table {
        let mut claims = good();
        claims["token_use"] = token_use.into();
        claims["aud"] = audience.into();
        let token = signed(&tokens, &header_of(&tokens), &claims.to_string());
        assert_eq!(verdict(&tokens, &token), Err(expected), "{claims}");
    }
}

#[test]
fn another_issuer_is_not_believed() {
    let (_folder, tokens) = tokens();
    for issuer in [
        "https://other.example",
        "https://cloud.example/",
        "",
        "HTTPS://CLOUD.EXAMPLE",
    ] {
        let mut claims = good();
        claims["iss"] = issuer.into();
        let token = signed(&tokens, &header_of(&tokens), &claims.to_string());
        assert_eq!(verdict(&tokens, &token), Err(TokenError::Issuer), "{issuer}");
    }
}

#[test]
fn only_es256_with_a_key_of_the_ring_is_believed() {
    let (_folder, tokens) = tokens();
    let (_other_folder, other) = self::tokens();
    let claims = good().to_string();
    let header = header_of(&tokens);
    let with = |field: &str, value: Value| {
        let mut header = header.clone();
        header[field] = value;
        header
    };

    // The public key as an HMAC secret, in each published form.
    let jwk = serde_json::to_value(tokens.ring.jwks()).unwrap()["keys"][0].clone();
    let coordinates = ["x", "y"].map(|name| URL_SAFE_NO_PAD.decode(jwk[name].as_str().unwrap()).unwrap());
    let point = [&[4][..], &coordinates[0], &coordinates[1]].concat();
    for secret in [point, jwk.to_string().into_bytes(), jwk["x"].as_str().unwrap().into()] {
        let secret = EncodingKey::from_secret(&secret);
        let forged = signed_by(&secret, Algorithm::HS256, &with("alg", json!("HS256")), &claims);
        assert_eq!(verdict(&tokens, &forged), Err(TokenError::Algorithm));
        let relabelled = signed_by(&secret, Algorithm::HS256, &header, &claims);
        assert_eq!(verdict(&tokens, &relabelled), Err(TokenError::Signature));
    }

    let rsa = KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap().serialize_pem();
    let rsa = EncodingKey::from_rsa_pem(rsa.as_bytes()).unwrap();
    let forged = signed_by(&rsa, Algorithm::RS256, &with("alg", json!("RS256")), &claims);
    assert_eq!(verdict(&tokens, &forged), Err(TokenError::Algorithm));
    let p384 = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap().serialize_pem();
    let p384 = EncodingKey::from_ec_pem(p384.as_bytes()).unwrap();
    let forged = signed_by(&p384, Algorithm::ES384, &with("alg", json!("ES384")), &claims);
    assert_eq!(verdict(&tokens, &forged), Err(TokenError::Algorithm));

    for none in ["none", "None", "NONE", ""] {
        let header = with("alg", json!(none));
        let unsigned = format!("{}.{}.", part(header.to_string()), part(&claims));
        assert_eq!(verdict(&tokens, &unsigned), Err(TokenError::Malformed), "{none}");
        let signed = signed(&tokens, &header, &claims);
        assert_eq!(verdict(&tokens, &signed), Err(TokenError::Malformed), "{none}");
    }

    // Another service's key: with its own kid, with our kid, and embedded in the header.
    let theirs = &other.ring.signer(at(0)).unwrap().private;
    let forged = signed_by(theirs, Algorithm::ES256, &header_of(&other), &claims);
    assert_eq!(verdict(&tokens, &forged), Err(TokenError::Key));
    let forged = signed_by(theirs, Algorithm::ES256, &header, &claims);
    assert_eq!(verdict(&tokens, &forged), Err(TokenError::Signature));
    let their_jwk = serde_json::to_value(other.ring.jwks()).unwrap()["keys"][0].clone();
    let mut brought = header.clone();
    brought["jwk"] = their_jwk;
    brought["jku"] = json!("https://other.example/jwks.json");
    let forged = signed_by(theirs, Algorithm::ES256, &brought, &claims);
    assert_eq!(verdict(&tokens, &forged), Err(TokenError::Signature));
}

#[test]
fn a_kid_is_compared_and_nothing_else() {
    let (folder, tokens) = tokens();
    let claims = good().to_string();
    let kid = tokens.ring.signer(at(0)).unwrap().id.clone();
    let stem = format!("20260101T000000Z-{kid}");
    let kids = [
        json!(null),
        json!(""),
        json!("../../../etc/passwd"),
        json!(folder.path().join(format!("{stem}.pem"))),
        json!(stem),
        json!(format!("./{kid}")),
        json!(format!("{kid}\0")),
        json!(kid.to_lowercase()),
        json!("' OR 1=1 --"),
    ];
    for kid in kids {
        let header = json!({"alg": "ES256", "typ": "JWT", "kid": kid});
        let token = signed(&tokens, &header, &claims);
        assert_eq!(verdict(&tokens, &token), Err(TokenError::Key), "{header}");
    }
    let token = signed(&tokens, &json!({"alg": "ES256", "typ": "JWT"}), &claims);
    assert_eq!(verdict(&tokens, &token), Err(TokenError::Key), "no kid");
}

#[test]
fn what_is_no_token_is_malformed() {
    let (_folder, tokens) = tokens();
    let good = tokens.sign(&hour(user())).unwrap();
    let parts: Vec<_> = good.split('.').collect();
    let (header, claims) = (header_of(&tokens), self::good().to_string());
    let with = |field: &str, value: Value| {
        let mut header = header.clone();
        header[field] = value;
        signed(&tokens, &header, &claims)
    };
    let table = [
        (String::new(), TokenError::Malformed),
        ("..".to_owned(), TokenError::Malformed),
        (format!("{}.{}", parts[0], parts[1]), TokenError::Malformed),
        (format!("{good}.{}", parts[2]), TokenError::Malformed),
        (format!("{good}="), TokenError::Malformed),
        (format!("{good}\n"), TokenError::Malformed),
        (format!(" {good}"), TokenError::Malformed),
        (format!("{}.{}.", parts[0], parts[1]), TokenError::Signature),
        (
            format!("{}.{}.{}", parts[0], parts[1], part([0; 64])),
            TokenError::Signature,
        ),
        (
            format!("{}.{}.{}", parts[0], part(b"{}"), parts[2]),
            TokenError::Signature,
        ),
        (with("typ", json!("at+jwt")), TokenError::Malformed),
        (with("typ", Value::Null), TokenError::Malformed),
        (with("crit", json!(["b64"])), TokenError::Malformed),
        (with("crit", json!([])), TokenError::Malformed),
        (signed(&tokens, &header, "[]"), TokenError::Claims),
        (signed(&tokens, &header, "no JSON"), TokenError::Claims),
    ];
    for (token, expected) in table {
        assert_eq!(verdict(&tokens, &token), Err(expected), "{token}");
    }
}

#[test]
fn a_token_may_be_so_long_and_no_longer() {
    let (_folder, tokens) = tokens();
    let padded = |padding: usize| {
        let claims = format!("{}{}", good(), " ".repeat(padding));
        signed(&tokens, &header_of(&tokens), &claims)
    };
    let room = MAX_BYTES - padded(0).len();
    let fits = padded(room / 4 * 3);
    assert!(fits.len() > MAX_BYTES - 8 && fits.len() <= MAX_BYTES, "{}", fits.len());
    assert!(verdict(&tokens, &fits).is_ok());
    let long = padded(room / 4 * 3 + 9);
    assert_eq!(verdict(&tokens, &long), Err(TokenError::TooLong));

    // A token that verifiers would reject is not signed.
    let teams = vec![ID.parse().unwrap(); 200];
    let (user, cluster) = (ID.parse().unwrap(), ID.parse().unwrap());
    let refusal = tokens
        .sign(&hour(TokenUse::Kubernetes { user, cluster, teams }))
        .unwrap_err();
    assert!(matches!(refusal, SignError::TooLong(_)), "{refusal:?}");
}

#[test]
fn a_token_outlives_the_rotation_of_its_key() {
    let (folder, tokens) = tokens();
    let day = SignedDuration::from_hours(24);
    let old = tokens.sign(&Claims::new(user(), at(0), day)).unwrap();
    let ring = KeyRing::rotate(folder.path(), at(10)).unwrap();
    let rotated = Tokens::new(ISSUER, ring);
    assert!(rotated.verify(&old, at(20), AcceptedUses::Api).is_ok());

    // Until the new key signs, a verifier that has only the old key accepts every token.
    let early = rotated.sign(&Claims::new(user(), at(20), day)).unwrap();
    assert!(tokens.verify(&early, at(20), AcceptedUses::Api).is_ok());
    let later = at(10) + ACTIVATION_DELAY;
    let late = rotated.sign(&Claims::new(user(), later, day)).unwrap();
    assert_eq!(tokens.verify(&late, later, AcceptedUses::Api), Err(TokenError::Key));
    assert!(rotated.verify(&late, later, AcceptedUses::Api).is_ok());

    let gone = KeyRing::retire(folder.path(), later + day, day).unwrap();
    assert_eq!(gone.len(), 1);
    let retired = Tokens::new(ISSUER, KeyRing::load(folder.path()).unwrap());
    assert_eq!(retired.verify(&old, at(20), AcceptedUses::Api), Err(TokenError::Key));
}

#[test]
fn no_refusal_shows_the_token() {
    let (_folder, tokens) = tokens();
    let token = tokens.sign(&hour(user())).unwrap();
    let refusal = tokens.verify(&token, at(3600), AcceptedUses::Api).unwrap_err();
    let shown = format!("{refusal} {refusal:?} {tokens:?}");
    assert!(token.split('.').all(|part| !shown.contains(part)), "{shown}");
}
