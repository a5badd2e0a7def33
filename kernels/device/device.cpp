// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/device/device.hpp"

#include <cstring>

namespace gyr {

Device::Device(bool dry_run, Index scratch_bytes)
    : queue(dry_run), scratch(Arena::make(Memory::scratch, scratch_bytes, dry_run)), dry_run_(dry_run) {}

Work& Device::work_of(const char* kernel) {
  for (Work& known : work_)
    if (known.kernel == kernel) return known;
  for (Work& known : work_)  // the same name may be another string literal, at another address
    if (std::strcmp(known.kernel, kernel) == 0) return known;
  return work_.emplace_back(Work{kernel});
}

Device::Launch Device::launch(const char* kernel, double flops, double bytes) {
  Work& work = work_of(kernel);
  work.calls += times_;
  work.flops += double(times_) * flops;
  work.bytes += double(times_) * bytes;
  const LaunchShape shape{kernel, flops, bytes};
  std::size_t count = 0;
  if (plans_foreign_gpu()) return Launch(*this, std::size_t(&work - work_.data()), count);  // counted in another dry run
  if (dry_run_ || times_launches) count = launch_counts.place_of(shape), launch_counts.line(count).second.calls += times_;
  overlapped_transfers.launched(shape, times_);
  return Launch(*this, std::size_t(&work - work_.data()), count);
}

void Device::join(const Device& lane, Index times, double part_of_seconds) {
  for (const auto& [shape, count] : lane.gemm_counts) gemm_counts[shape] += times_ * times * count;
  for (const auto& [shape, more] : lane.launch_counts) {
    LaunchCount& count = launch_counts[shape];
    count.calls += times_ * times * more.calls;
    count.seconds += part_of_seconds * more.seconds;
    overlapped_transfers.launched(shape, times_ * times * more.calls);
  }
  for (const Work& more : lane.work()) {
    Work& work = work_of(more.kernel);
    work.calls += times_ * times * more.calls;
    work.flops += double(times_ * times) * more.flops;
    work.bytes += double(times_ * times) * more.bytes;
    work.seconds += part_of_seconds * more.seconds;
  }
}

Device::Launch::Launch(Device& device, std::size_t entry, std::size_t count) : device_(device), entry_(entry), count_(count) {
  if (!device.dry_run_)
    start_ = std::chrono::steady_clock::now();  // a dry run consists of launches only, and reading the clock would take half of its time
}

Device::Launch::~Launch() {
  if (device_.dry_run_) return;
  const auto end = std::chrono::steady_clock::now();
  Work& work = device_.work_[entry_];
  const double seconds = std::chrono::duration<double>(end - start_).count();
  work.seconds += seconds;
  if (device_.times_launches) device_.launch_counts.line(count_).second.seconds += seconds;
  if (device_.recorder_) device_.recorder_->kernel(work.kernel, moment_of(start_), moment_of(end));
}

Device::Repeat::Repeat(Device& device, Index times) : device_(device), before_(device.times_) {
  ensure(device.dry_run_ && times >= 0, "a repeat count of {}: it must be at least 0, and needs a dry-run device", times);
  device.times_ *= times;
}

void Device::add(const std::vector<Work>& more) {
  for (std::size_t i = 0; i < more.size(); ++i) {
    ensure(i < work_.size() && std::strcmp(work_[i].kernel, more[i].kernel) == 0, "the counts of {} are added to another kernel", more[i].kernel);
    work_[i].calls += more[i].calls;
    work_[i].flops += more[i].flops;
    work_[i].bytes += more[i].bytes;
  }
}

double Device::flops() const {
  double sum = 0;
  for (const Work& w : work_) sum += w.flops;
  return sum;
}

}  // namespace gyr
