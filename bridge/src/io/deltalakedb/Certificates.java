package io.deltalakedb;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/** Owns the trust in an endpoint whose certificate comes from an authority of its own. */
final class Certificates {
  private Certificates() {}

  /** TLS that trusts the certificates of a PEM file, and no others. */
  static SSLContext trusting(String pem) throws IOException {
    try (InputStream in = Files.newInputStream(Path.of(pem))) {
      KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
      store.load(null, null);
      int count = 0;
      for (Certificate one : CertificateFactory.getInstance("X.509").generateCertificates(in)) {
        store.setCertificateEntry("ca-" + count++, one);
      }
      if (count == 0) {
        throw new IOException(pem + " (" + Endpoint.CA + ") holds no certificate");
      }
      TrustManagerFactory trust =
          TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
      trust.init(store);
      SSLContext tls = SSLContext.getInstance("TLS");
      tls.init(null, trust.getTrustManagers(), null);
      return tls;
    } catch (GeneralSecurityException e) {
      throw new IOException(pem + " (" + Endpoint.CA + ") is no file of certificates (PEM)", e);
    }
  }
}
