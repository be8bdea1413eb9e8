//! The key that signs tokens of service accounts (JWTs with ES256), and the documents for verifying them.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
};
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use sha2::Digest as _;

use crate::pki::PkiError;

/// Issuer of the tokens, and this server's audience. There is no cluster domain here.
pub const ISSUER: &str = "https://kubernetes.default.svc";
/// The bytes before the point of a P-256 key in its SubjectPublicKeyInfo (RFC 5480).
const P256: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// Number of tokens with a verified signature that are remembered: a verification takes as long as half a write.
const KNOWN: usize = 1024;

/// The signing key. It implements no `Debug`, which could show nothing useful.
pub struct Keys {
    pair: EcdsaKeyPair,
    random: SystemRandom,
    id: String,
    /// SHA-256 of tokens signed by this key. Everything else about a token is checked each time.
    known: Mutex<HashSet<[u8; 32]>>,
}

impl Keys {
    /// Reads a PKCS #8 key in PEM.
    pub fn from_pem(pem: &str) -> Result<Self, PkiError> {
        let refused = |e: &dyn std::fmt::Display| PkiError::Tls(format!("the key of service accounts: {e}"));
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).map_err(|e| refused(&e))?;
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der.secret_pkcs8_der(), &random)
            .map_err(|e| refused(&e))?;
        let public = [&P256[..], pair.public_key().as_ref()].concat();
        let id = URL_SAFE_NO_PAD.encode(sha2::Sha256::digest(public));
        Ok(Self { pair, random, id, known: Mutex::default() })
    }

    /// Signs a JWT with these claims.
    pub fn sign(&self, claims: &Value) -> Result<String, String> {
        let head = json!({"alg": "ES256", "kid": self.id}).to_string();
        let mut out = format!("{}.{}", URL_SAFE_NO_PAD.encode(head), URL_SAFE_NO_PAD.encode(claims.to_string()));
        let signature = self.pair.sign(&self.random, out.as_bytes()).map_err(|e| e.to_string())?;
        out.push('.');
        URL_SAFE_NO_PAD.encode_string(signature.as_ref(), &mut out);
        Ok(out)
    }

    /// Verifies the signature of a JWT. The error is the text of upstream's library.
    pub fn verify(&self, token: &str) -> Result<(), String> {
        let digest: [u8; 32] = sha2::Sha256::digest(token).into();
        if self.known.lock().unwrap_or_else(PoisonError::into_inner).contains(&digest) {
            return Ok(());
        }
        self.verify_anew(token)?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KNOWN {
            known.clear();
        }
        known.insert(digest);
        Ok(())
    }

    fn verify_anew(&self, token: &str) -> Result<(), String> {
        let broken = || "go-jose/go-jose: error in cryptographic primitive".to_owned();
        let (signed, signature) = token.rsplit_once('.').ok_or_else(broken)?;
        let head = signed.split_once('.').map(|(head, _)| head).ok_or_else(broken)?;
        let head: Value =
            URL_SAFE_NO_PAD.decode(head).ok().and_then(|b| serde_json::from_slice(&b).ok()).ok_or_else(broken)?;
        if head.get("kid").and_then(Value::as_str).is_some_and(|kid| !kid.is_empty() && kid != self.id) {
            return Err("invalid signature, no keys found".to_owned());
        }
        if head.get("alg").and_then(Value::as_str) != Some("ES256") {
            return Err(broken());
        }
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| broken())?;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.pair.public_key().as_ref())
            .verify(signed.as_bytes(), &signature)
            .map_err(|_| broken())
    }

    /// `/openid/v1/jwks`.
    pub fn key_set(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        let part = |range: std::ops::Range<usize>| URL_SAFE_NO_PAD.encode(point.get(range).unwrap_or_default());
        json!({"keys": [{"use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": "ES256",
            "x": part(1..33), "y": part(33..65)}]})
    }

    /// `/.well-known/openid-configuration` of a server at `address`.
    pub fn configuration(address: &str) -> Value {
        json!({"issuer": ISSUER, "jwks_uri": format!("https://{address}/openid/v1/jwks"),
            "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"]})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Keys {
        Keys::from_pem(&rcgen::KeyPair::generate().unwrap().serialize_pem()).unwrap()
    }

    #[test]
    fn only_whole_tokens_of_this_key_pass() {
        let (keys, others) = (keys(), keys());
        let token = keys.sign(&json!({"sub": "a"})).unwrap();
        keys.verify(&token).unwrap();
        assert_eq!(others.verify(&token).unwrap_err(), "invalid signature, no keys found");
        let parts: Vec<&str> = token.split('.').collect();
        let forged = URL_SAFE_NO_PAD.encode(json!({"sub": "b"}).to_string());
        assert!(keys.verify(&format!("{}.{forged}.{}", parts[0], parts[2])).is_err());
        let none = URL_SAFE_NO_PAD.encode(json!({"alg": "none"}).to_string());
        assert!(keys.verify(&format!("{none}.{}.", parts[1])).is_err());
        for bad in ["", ".", "..", "a.b.c", &token[..token.len() - 1]] {
            assert!(keys.verify(bad).is_err(), "{bad}");
        }
        for n in 0..KNOWN + 1 {
            let token = keys.sign(&json!({"sub": n})).unwrap();
            keys.verify(&token).unwrap();
            assert!((1..=KNOWN).contains(&keys.known.lock().unwrap().len()));
            assert!(keys.verify(&format!("{token}x")).is_err(), "what is remembered is the whole token");
        }
        assert_eq!(keys.key_set()["keys"][0]["x"].as_str().unwrap().len(), 43);
    }
}
