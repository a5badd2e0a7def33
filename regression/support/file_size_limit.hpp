// SPDX-License-Identifier: BSD-3-Clause
// A full disk, as far as one process is concerned.
#pragma once

#include <signal.h>
#include <sys/resource.h>

namespace gyr::testing {

// While this lives, the file system takes no more than `bytes` of any file of this process.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit full{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &full);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_;
  sighandler_t handler_;
};

}  // namespace gyr::testing
