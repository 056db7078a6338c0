//! The ID token with which a sign-in ends: its checks, and the person that it names.
//!
//! It is accepted only with the signature of a public key of the provider, whatever its header says, and for this
//! client and this sign-in (OpenID Connect Core 1.0, 3.1.3.7 and 3.1.3.8).

use std::collections::BTreeMap;
use std::time::SystemTime;

use jiff::Timestamp;
use openidconnect::core::{
    CoreGenderClaim, CoreJsonWebKeySet, CoreJweContentEncryptionAlgorithm, CoreJwsSigningAlgorithm,
};
use openidconnect::{
    AccessToken, AccessTokenHash, AdditionalClaims, ClaimsVerificationError, ClientId, IdToken, IdTokenClaims,
    IdTokenVerifier, IssuerUrl, Nonce, SignatureVerificationError,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::settings::ProviderSettings;
use crate::models::values::Subject;

/// The maximum lag of our clock behind that of the provider, in seconds.
const SKEW: i64 = 60;
/// The maximum number of groups of a person.
const GROUPS: usize = 1_000;
/// The accepted signatures: those of a public key alone.
const ALGORITHMS: [CoreJwsSigningAlgorithm; 4] = [
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha256,
    CoreJwsSigningAlgorithm::EcdsaP256Sha256,
    CoreJwsSigningAlgorithm::RsaSsaPssSha256,
    CoreJwsSigningAlgorithm::EdDsa,
];

/// The claims that OpenID Connect does not define: groups, and those of single providers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct OtherClaims {
    #[serde(flatten)]
    claims: BTreeMap<String, Value>,
}

impl AdditionalClaims for OtherClaims {}

type SignedToken = IdToken<OtherClaims, CoreGenderClaim, CoreJweContentEncryptionAlgorithm, CoreJwsSigningAlgorithm>;
type TokenClaims = IdTokenClaims<OtherClaims, CoreGenderClaim>;

/// An ID token is not accepted.
#[derive(Debug, thiserror::Error)]
pub(super) enum TokenError {
    #[error("the ID token is not accepted")]
    Claims(#[from] ClaimsVerificationError),
    #[error("the ID token has no valid signature")]
    Signature(#[from] SignatureVerificationError),
    #[error("the issuer is not a URL")]
    Issuer(#[from] url::ParseError),
    #[error("the ID token was issued for another client (azp)")]
    OtherClient,
    #[error("the access token is not the one of the ID token (at_hash)")]
    OtherAccessToken,
    #[error("the subject of the ID token must be 1 to 255 printable ASCII characters")]
    Subject,
    /// The person may not sign in here.
    #[error("the claim {claim} is not {wanted}")]
    Claim { claim: &'static str, wanted: String },
    #[error("the ID token refers to the groups of the person, or has too many of them")]
    GroupsElsewhere,
}

impl TokenError {
    /// Returns true if the provider may have a new key since its keys were read. Without the id of the key in the
    /// token, an old key is tried, and does not fit.
    pub(super) fn is_unknown_key(&self) -> bool {
        matches!(
            self,
            Self::Claims(ClaimsVerificationError::SignatureVerification(
                SignatureVerificationError::NoMatchingKey
                    | SignatureVerificationError::CryptoError(_)
                    | SignatureVerificationError::AmbiguousKeyId(_)
            ))
        )
    }
}

/// What a provider says of a person.
#[derive(Debug)]
pub(crate) struct Person {
    pub(crate) issuer: String,
    pub(crate) subject: String,
    /// The e-mail address, if the provider has verified it.
    pub(crate) email: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) groups: Vec<String>,
}

/// What an ID token must fit to.
pub(super) struct TokenCheck<'a> {
    pub(super) settings: &'a ProviderSettings,
    /// The access token that came with it.
    pub(super) access_token: &'a AccessToken,
    /// The nonce of the sign-in.
    pub(super) nonce: Nonce,
    pub(super) now: Timestamp,
}

impl TokenCheck<'_> {
    /// The person whom `token` names, if it is signed by one of `keys`.
    pub(super) fn person(&self, token: &SignedToken, keys: &CoreJsonWebKeySet) -> Result<Person, TokenError> {
        let claims = self.verified(token, keys)?;
        let subject = claims.subject().as_str();
        subject.parse::<Subject>().map_err(|_| TokenError::Subject)?;
        let others = &claims.additional_claims().claims;
        for (claim, wanted) in [("hd", &self.settings.hosted_domain), ("tid", &self.settings.tenant)] {
            let has = others.get(claim).and_then(Value::as_str);
            if let Some(wanted) = wanted.as_ref().filter(|wanted| has != Some(wanted.as_str())) {
                let wanted = wanted.clone();
                return Err(TokenError::Claim { claim, wanted });
            }
        }
        let email = claims.email().filter(|_| claims.email_verified() == Some(true));
        let name = claims.name().and_then(|name| name.get(None));
        Ok(Person {
            issuer: self.settings.issuer.clone(),
            subject: subject.to_owned(),
            email: email.map(|email| email.as_str().to_owned()),
            name: name.map(|name| name.as_str().to_owned()),
            groups: self.groups(others)?,
        })
    }

    fn verified<'t>(&self, token: &'t SignedToken, keys: &CoreJsonWebKeySet) -> Result<&'t TokenClaims, TokenError> {
        let now = self.now;
        let issuer = IssuerUrl::new(self.settings.issuer.clone())?;
        let client = ClientId::new(self.settings.client_id.clone());
        // Without the secret of the client, which is a key of HS256.
        let verifier = IdTokenVerifier::new_public_client(client, issuer, keys.clone())
            .set_allowed_algs(ALGORITHMS)
            .set_time_fn(move || SystemTime::from(now).into())
            .set_issue_time_verifier_fn(move |issued| {
                if issued.timestamp() > now.as_second() + SKEW {
                    return Err("the ID token was issued in the future".to_owned());
                }
                Ok(())
            });
        let claims = token.claims(&verifier, &self.nonce)?;
        let client = claims.authorized_party();
        if client.is_some_and(|client| client.as_str() != self.settings.client_id) {
            return Err(TokenError::OtherClient);
        }
        if let Some(expected) = claims.access_token_hash() {
            let (algorithm, key) = (token.signing_alg()?, token.signing_key(&verifier)?);
            let hash = AccessTokenHash::from_token(self.access_token, algorithm, key);
            if hash.ok().as_ref() != Some(expected) {
                return Err(TokenError::OtherAccessToken);
            }
        }
        Ok(claims)
    }

    /// The groups of a person. Without the claim there are none; a provider with too many for a token says so.
    fn groups(&self, claims: &BTreeMap<String, Value>) -> Result<Vec<String>, TokenError> {
        let Some(claim) = &self.settings.groups_claim else {
            return Ok(Vec::new());
        };
        let elsewhere = claims.get("_claim_names").and_then(|names| names.get(claim));
        let groups = claims.get(claim).and_then(Value::as_array).map(Vec::as_slice);
        let groups = groups.unwrap_or_default();
        if elsewhere.is_some() || groups.len() > GROUPS {
            return Err(TokenError::GroupsElsewhere);
        }
        Ok(groups.iter().filter_map(Value::as_str).map(str::to_owned).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_that_fits_no_known_key_may_be_of_a_new_one() {
        for (error, wanted) in [
            (SignatureVerificationError::NoMatchingKey, true),
            (SignatureVerificationError::CryptoError(String::new()), true),
            (SignatureVerificationError::AmbiguousKeyId(String::new()), true),
            (SignatureVerificationError::NoSignature, false),
        ] {
            let error = TokenError::Claims(ClaimsVerificationError::SignatureVerification(error));
            assert_eq!(error.is_unknown_key(), wanted, "{error:?}");
        }
    }
}
