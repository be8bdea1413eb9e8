//! Media at addresses of several protocols: the one that the drive declares, the next one when one is refused, and the certificate.

use bmc::ErrorKind;
use redfish::Inserted;
use serde_json::{Value, json};

use crate::kit::{Bmc, CD, Rig, SYSTEM, error_body, odd, rig};

const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nMIIB\nAAAA\n-----END CERTIFICATE-----\n";

fn urls() -> Vec<String> {
    ["http://192.0.2.1:6180", "https://192.0.2.1:6183"].map(|base| format!("{base}/media/0123456789.iso")).to_vec()
}

/// Addresses that were to be put in.
fn tried(bmc: &Bmc) -> Vec<String> {
    let seen = bmc.take_seen().into_iter().filter(|seen| seen.path.ends_with("VirtualMedia.InsertMedia"));
    seen.map(|seen| seen.body["Image"].as_str().unwrap().split(':').next().unwrap().to_owned()).collect()
}

fn declares(bmc: &Bmc, protocols: Value) {
    bmc.edit(CD, |cd| {
        cd["Actions"]["#VirtualMedia.InsertMedia"]["TransferProtocolType@Redfish.AllowableValues"] = protocols;
    });
}

async fn insert(rig: &Rig) -> Result<Inserted, bmc::BmcError> {
    rig.client.insert_media_from(&urls(), Some(CERTIFICATE)).await
}

#[tokio::test]
async fn a_drive_gets_a_protocol_that_it_declares() {
    for (protocols, expected) in
        [(json!([]), "http"), (json!(["CIFS", "HTTPS"]), "https"), (json!(["HTTPS", "HTTP"]), "http")]
    {
        let bmc = Bmc::generic();
        declares(&bmc, protocols);
        let rig = rig(&bmc, SYSTEM);
        assert_eq!(insert(&rig).await.unwrap(), Inserted::Now);
        assert_eq!(tried(&bmc), [expected]);
        // The medium is in, whichever address it was.
        assert_eq!(insert(&rig).await.unwrap(), Inserted::Already);
    }
    let bmc = Bmc::generic();
    declares(&bmc, json!(["CIFS", "NFS"]));
    let rig = rig(&bmc, SYSTEM);
    let error = insert(&rig).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported);
    assert!(error.found.contains("CIFS, NFS") && error.advice.contains("--media-tls-listen"), "{error}");
    assert_eq!(tried(&bmc).len(), 0);
}

#[tokio::test]
async fn a_bmc_that_refuses_http_gets_https_and_keeps_it() {
    // As OpenBMC answers whatever is neither https nor smb.
    let refusal = || {
        let text = "The resource at http://192.0.2.1:6180/media/0123456789.iso is in a format not recognized.";
        odd(400, error_body("ResourceAtUriInUnknownFormat", text))
    };
    let bmc = Bmc::generic();
    bmc.script("POST", "VirtualMedia.InsertMedia", refusal());
    let first = rig(&bmc, SYSTEM);
    insert(&first).await.unwrap();
    assert_eq!(tried(&bmc), ["http", "https"]);
    assert_eq!(bmc.resource(CD)["Image"], urls()[1]);
    first.client.eject_media().await.unwrap();
    insert(&first).await.unwrap();
    assert_eq!(tried(&bmc), ["https"]);

    // What refuses both is told in the words for the first, without the address.
    let bmc = Bmc::generic();
    bmc.script("POST", "VirtualMedia.InsertMedia", refusal());
    bmc.script("POST", "VirtualMedia.InsertMedia", odd(400, error_body("Licence", "No licence for media")));
    let second = rig(&bmc, SYSTEM);
    let error = insert(&second).await.unwrap_err();
    assert!(error.found.contains("format not recognized") && !error.found.contains("0123456789"), "{error}");
}

#[tokio::test]
async fn a_bmc_that_keeps_certificates_of_media_servers_is_given_ours_once() {
    let list = format!("{CD}/Certificates");
    let with_list = |there: &[&str]| {
        let bmc = Bmc::generic();
        declares(&bmc, json!(["HTTPS"]));
        bmc.edit(CD, |cd| cd["Certificates"] = json!({"@odata.id": list}));
        bmc.set(|inner| {
            let members: Vec<Value> = (0..there.len()).map(|n| json!({"@odata.id": format!("{list}/c{n}")})).collect();
            inner.resources.insert(list.clone(), json!({"Members": members}));
            for (n, pem) in there.iter().enumerate() {
                inner.resources.insert(format!("{list}/c{n}"), json!({"CertificateString": pem}));
            }
        });
        bmc
    };
    let posts = |bmc: &Bmc| {
        let seen = bmc.take_seen().into_iter().filter(|seen| seen.method == "POST" && seen.path == list);
        seen.map(|seen| seen.body).collect::<Vec<_>>()
    };
    let bmc = with_list(&["-----BEGIN CERTIFICATE-----other"]);
    let first = rig(&bmc, SYSTEM);
    insert(&first).await.unwrap();
    assert_eq!(posts(&bmc), [json!({"CertificateString": CERTIFICATE, "CertificateType": "PEM"})]);
    first.client.eject_media().await.unwrap();
    insert(&first).await.unwrap();
    assert_eq!(posts(&bmc).len(), 0);
    // Another life of the server finds it there; line breaks do not count.
    let again = rig(&bmc, SYSTEM);
    again.client.eject_media().await.unwrap();
    insert(&again).await.unwrap();
    assert_eq!(posts(&bmc).len(), 0);
    let bmc = with_list(&[&CERTIFICATE.replace('\n', "\r\n")]);
    let there = rig(&bmc, SYSTEM);
    insert(&there).await.unwrap();
    assert_eq!(posts(&bmc).len(), 0);
    // One that keeps many already is not filled up.
    let bmc = with_list(&["-----BEGIN CERTIFICATE-----other"; 16]);
    let full = rig(&bmc, SYSTEM);
    insert(&full).await.unwrap();
    assert_eq!(posts(&bmc).len(), 0);
    // One that does not take it is given the medium all the same.
    let bmc = with_list(&[]);
    bmc.script("POST", "/Certificates", odd(405, error_body("OperationNotAllowed", "Not allowed.")));
    let refusing = rig(&bmc, SYSTEM);
    insert(&refusing).await.unwrap();
    assert_eq!(bmc.resource(CD)["Inserted"], true);
}
