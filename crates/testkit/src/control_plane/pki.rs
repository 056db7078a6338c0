//! The keys and certificates of one control plane: one authority, for its server and for its clients.

use std::collections::HashMap;
use std::fmt;
use std::fs::OpenOptions;
use std::io::Write;
use std::net::Ipv4Addr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

use super::Identity;
use super::servers::FIRST_SERVICE;

/// X.520 organizationName. A client's groups are its subject's organizations; rcgen holds one value for each type, so
/// the second one is given by its number.
const ORGANIZATION: &[u64] = &[2, 5, 4, 10];

pub(super) struct Pki {
    folder: PathBuf,
    authority: CertifiedIssuer<'static, KeyPair>,
    clients: Mutex<HashMap<Identity, ClientFiles>>,
}

/// The certificate and the key of one identity.
#[derive(Clone, Debug)]
pub(super) struct ClientFiles {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

impl Pki {
    /// Makes the authority (`ca.crt`), the server's certificate (`apiserver.crt`, `.key`), which is good for this
    /// address and for that of the Service `kubernetes`, and the pair of keys that service account tokens are signed
    /// with (`sa.key`, `sa.pub`) in a new folder.
    pub(super) fn create(folder: PathBuf, address: Ipv4Addr) -> Self {
        std::fs::create_dir(&folder).expect("a folder for keys");
        let mut params = CertificateParams::new([]).expect("no names");
        params.distinguished_name.push(DnType::CommonName, "tidewaiter-testkit");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let authority = CertifiedIssuer::self_signed(params, new_key()).expect("a certificate authority");
        write_private(&folder.join("ca.crt"), &authority.pem());

        let service_accounts = new_key();
        write_private(&folder.join("sa.key"), &service_accounts.serialize_pem());
        write_private(&folder.join("sa.pub"), &service_accounts.public_key_pem());

        let pki = Self {
            folder,
            authority,
            clients: Mutex::default(),
        };
        let address = address.to_string();
        let names = [
            address.as_str(),
            "127.0.0.1",
            FIRST_SERVICE,
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
        ];
        let mut params = CertificateParams::new(names.map(String::from)).expect("server names");
        params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        pki.issue(&params, "apiserver");
        pki
    }

    pub(super) fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    /// The authority's certificate, as DER.
    pub(super) fn authority(&self) -> Vec<u8> {
        self.authority.der().to_vec()
    }

    /// The certificate of this identity, made on first use.
    pub(super) fn client(&self, identity: &Identity) -> ClientFiles {
        let mut clients = self.clients.lock();
        let number = clients.len();
        clients
            .entry(identity.clone())
            .or_insert_with(|| self.issue(&client_params(identity), &format!("client-{number}")))
            .clone()
    }

    fn issue(&self, params: &CertificateParams, name: &str) -> ClientFiles {
        let key = new_key();
        let certificate = params.signed_by(&key, &self.authority).expect("the authority signs");
        let files = ClientFiles {
            certificate: self.path(&format!("{name}.crt")),
            key: self.path(&format!("{name}.key")),
        };
        write_private(&files.certificate, &certificate.pem());
        write_private(&files.key, &key.serialize_pem());
        files
    }
}

impl fmt::Debug for Pki {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pki")
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}

fn client_params(identity: &Identity) -> CertificateParams {
    let mut params = CertificateParams::new([]).expect("no names");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let subject = &mut params.distinguished_name;
    let groups = identity.groups();
    assert!(
        groups.len() <= 2,
        "{identity:?}: a client certificate of the test kit holds two groups at most"
    );
    for (group, kind) in groups
        .iter()
        .zip([DnType::OrganizationName, DnType::CustomDnType(ORGANIZATION.to_vec())])
    {
        subject.push(kind, group.as_str());
    }
    subject.push(DnType::CommonName, identity.username());
    params
}

fn new_key() -> KeyPair {
    KeyPair::generate().expect("a key")
}

/// Writes a new file that only its owner may read.
pub(crate) fn write_private(path: &Path, text: &str) {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
