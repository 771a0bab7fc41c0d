/* corrnoise: correlated noise for differentially private training.
 *
 * Made by cbindgen from crates/capi/src; docs/cpp.md is the guide, examples/train.c a whole program.
 *
 * Rules for every function
 * - Whatever can fail returns a status; corrnoise_last_error_message() says what was met and what was expected.
 * - A call that fails changes nothing, unless its text says otherwise, and sets its `out` handle to NULL.
 * - Pointers are NULL, which is refused, or point to what the declaration says. Strings end in NUL and are UTF-8; paths
 *   are as the system has them.
 * - Handles are opaque. Each is freed by its own function, which takes NULL too. Handles made from others keep copies: the
 *   order of freeing does not matter.
 * - Any thread may use any handle. A mechanism serves one call at a time; a second one meanwhile gets CORRNOISE_STATUS_BUSY.
 * - Nothing unwinds into the caller.
 */

#ifndef CORRNOISE_H
#define CORRNOISE_H

#include <stddef.h>
#include <stdint.h>

/**
 * The outcome of a call. Unless its description says otherwise, a call that fails changes nothing.
 */
typedef enum {
  /**
   * The call did what was asked for.
   */
  CORRNOISE_STATUS_OK = 0,
  /**
   * A pointer was NULL, so nothing was done.
   */
  CORRNOISE_STATUS_NULL_POINTER = 1,
  /**
   * A number, a length, a text or an address was refused; nothing was done.
   */
  CORRNOISE_STATUS_INVALID_ARGUMENT = 2,
  /**
   * The plan was refused; nothing was done.
   */
  CORRNOISE_STATUS_PLAN = 3,
  /**
   * The key was refused; nothing was done.
   */
  CORRNOISE_STATUS_KEY = 4,
  /**
   * A checkpoint was refused; nothing was done.
   */
  CORRNOISE_STATUS_CHECKPOINT = 5,
  /**
   * A file could not be read or written; nothing was done.
   */
  CORRNOISE_STATUS_IO = 6,
  /**
   * The plan has no further step; nothing was done.
   */
  CORRNOISE_STATUS_PAST_END = 7,
  /**
   * An earlier step failed half-way, so nothing was done. Resume from a checkpoint.
   */
  CORRNOISE_STATUS_POISONED = 8,
  /**
   * The step is complete, but a gradient left the range of its number type and is infinite now. The next call makes the next step.
   */
  CORRNOISE_STATUS_OVERFLOW = 9,
  /**
   * Another thread is using this mechanism; nothing was done.
   */
  CORRNOISE_STATUS_BUSY = 10,
  /**
   * The state does not fit into memory; nothing was done.
   */
  CORRNOISE_STATUS_OUT_OF_MEMORY = 11,
  /**
   * A device or a thread failed. If it was during a step, the mechanism is poisoned.
   */
  CORRNOISE_STATUS_DEVICE = 12,
  /**
   * This library has a mistake. If it showed during a step, the mechanism is poisoned.
   */
  CORRNOISE_STATUS_INTERNAL = 13,
  /**
   * The plan draws batches, and nobody vouches for that of this step, or it is of another step, plan or run; nothing was done.
   */
  CORRNOISE_STATUS_BATCH = 14,
  /**
   * Noise would be made that was made before, so nothing was done. The message names the steps and the ways out.
   */
  CORRNOISE_STATUS_REPEATED = 15,
  /**
   * The mechanism belongs to the process that this one was forked from; nothing was done.
   */
  CORRNOISE_STATUS_FORKED = 16,
} corrnoise_status;

/**
 * What a resumed run does about noise that the dead run made after the checkpoint.
 */
typedef enum {
  /**
   * The resumed run never makes that noise again. This is the mode for a run of one process.
   */
  CORRNOISE_RESUME_MODE_NEW_INCARNATION = 0,
  /**
   * The mode for a run of several processes, which never makes that noise again either: one process draws 16 random bytes and sends
   * them to the others.
   */
  CORRNOISE_RESUME_MODE_SHARED_INCARNATION = 1,
  /**
   * The run goes on bit for bit. This is only for a run of which it is certain that it released nothing after the checkpoint.
   */
  CORRNOISE_RESUME_MODE_EXACT = 2,
} corrnoise_resume_mode;

#if defined(CORRNOISE_CUDA)
/**
 * The number type of values in device memory.
 */
typedef enum {
  /**
   * IEEE single precision, 4 bytes.
   */
  CORRNOISE_ELEMENT_TYPE_F32 = 0,
  /**
   * bfloat16, the upper half of a single.
   */
  CORRNOISE_ELEMENT_TYPE_BF16 = 1,
  /**
   * IEEE half precision, 2 bytes.
   */
  CORRNOISE_ELEMENT_TYPE_F16 = 2,
} corrnoise_element_type;
#endif

/**
 * The units of one step, which knows its step, plan and run. Where the claim rests on sampling, who is in it is as secret as the key.
 */
typedef struct corrnoise_batch corrnoise_batch;

/**
 * 32 secret bytes and the public name of the run that uses them. They are wiped when the key is freed.
 *
 * A key serves one mechanism: two of them with the same key, plan and run would make the same noise. Once a mechanism was made
 * with it the handle is empty, and has only to be freed; if making one fails, the key is still there.
 */
typedef struct corrnoise_key corrnoise_key;

/**
 * A running mechanism, which makes each step exactly once, in order, and none past the plan's end.
 */
typedef struct corrnoise_mechanism corrnoise_mechanism;

/**
 * A plan: the number of steps, the form of the noise and its amount. It holds no secret.
 */
typedef struct corrnoise_plan corrnoise_plan;

/**
 * The batches that a plan's claim assumes, drawn from the run's own key: the same in every process, in any order of calls and after every
 * resume. Steps in ascending order are the quickest.
 */
typedef struct corrnoise_sampler corrnoise_sampler;

/**
 * The coordinates of a model that one process makes noise for: a gradient is expected for each of its segments, in order.
 */
typedef struct corrnoise_shard corrnoise_shard;

#if defined(CORRNOISE_CUDA)
/**
 * Options of the CUDA engine, none of which changes the noise. Zero in every field, or NULL instead of the struct, is a good choice.
 */
typedef struct {
  /**
   * The number of rows that are made at a time: 1 makes none ahead, in the least memory; 0 lets the engine decide by form, size and free
   * memory.
   */
  uint32_t rows_ahead;
  /**
   * 1 lets corrnoise_mechanism_prepare() make rows on a stream of its own, of the lowest priority; with 0 that call does nothing.
   */
  uint32_t prepare;
  /**
   * The most bytes per parameter that state and rows made ahead may take together; 0 means no limit.
   */
  uint64_t max_state_bytes;
} corrnoise_cuda_options;
#endif

/**
 * Options of the CPU engine. Zero in every field, or NULL instead of the struct, is a good choice.
 */
typedef struct {
  /**
   * The number of threads, the caller's included; 0 means one per core.
   */
  uint32_t threads;
  /**
   * 1 keeps a ring in its least memory, which can be several times as slow; 0 lets it make rows ahead.
   */
  uint32_t compact;
  /**
   * The number of threads that corrnoise_mechanism_prepare() uses, at a low priority; 0 means one per four cores, and at least one.
   */
  uint32_t prepare_threads;
} corrnoise_cpu_options;

/**
 * A range of coordinates from `start` to `end`, the latter excluded.
 */
typedef struct {
  /**
   * The first coordinate of the range.
   */
  uint64_t start;
  /**
   * One past the last coordinate of the range.
   */
  uint64_t end;
} corrnoise_range;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of this library, such as "0.1.0".
 */
const char *corrnoise_version(void);

/**
 * The version of the noise specification: libraries that agree on it make the same bits.
 */
uint32_t corrnoise_noise_spec_version(void);

#if defined(CORRNOISE_CUDA)
/**
 * Begins a run on a CUDA device, at step 0. `stream` is a CUstream (or cudaStream_t) of the device's primary context, which
 * must outlive the mechanism; NULL is the default stream. `options` may be NULL. Takes the key out of its handle.
 */
corrnoise_status corrnoise_cuda_mechanism_new(const corrnoise_plan *plan,
                                              corrnoise_key *key,
                                              const corrnoise_shard *shard,
                                              uint32_t device,
                                              void *stream,
                                              const corrnoise_cuda_options *options,
                                              corrnoise_mechanism **out);
#endif

#if defined(CORRNOISE_CUDA)
/**
 * Resumes a run from checkpoints on a CUDA device; see corrnoise_mechanism_resume() and corrnoise_cuda_mechanism_new().
 */
corrnoise_status corrnoise_cuda_mechanism_resume(const corrnoise_plan *plan,
                                                 corrnoise_key *key,
                                                 const corrnoise_shard *shard,
                                                 uint32_t device,
                                                 void *stream,
                                                 const corrnoise_cuda_options *options,
                                                 const char *const *files,
                                                 size_t num_files,
                                                 uint32_t mode,
                                                 const uint8_t *nonce,
                                                 corrnoise_mechanism **out);
#endif

#if defined(CORRNOISE_CUDA)
/**
 * Enqueues the noise of the next step on the mechanism's stream and returns at once. `element_type` is a corrnoise_element_type,
 * `gradients[i]` a CUdeviceptr to `lengths[i]` values, one per segment of the shard. They must not overlap, and must stay
 * until the stream has passed this point.
 */
corrnoise_status corrnoise_cuda_add_to(const corrnoise_mechanism *mechanism,
                                       uint32_t element_type,
                                       const uint64_t *gradients,
                                       const uint64_t *lengths,
                                       size_t count);
#endif

#if defined(CORRNOISE_CUDA)
/**
 * The first step at which a gradient in device memory left the range of its number type; UINT64_MAX if there was none. Waits for the stream.
 */
corrnoise_status corrnoise_cuda_first_overflow(const corrnoise_mechanism *mechanism,
                                               uint64_t *step);
#endif

/**
 * Adds the noise of the next step to f32 gradients: one per segment of the shard, `lengths[i]` values from `gradients[i]` on.
 * They must not overlap. Returns when all is added.
 *
 * CORRNOISE_STATUS_DEVICE and CORRNOISE_STATUS_INTERNAL mean that gradients may be half-way, and poison the mechanism.
 */
corrnoise_status corrnoise_add_to_f32(const corrnoise_mechanism *mechanism,
                                      float *const *gradients,
                                      const size_t *lengths,
                                      size_t count);

/**
 * Does what corrnoise_add_to_f32() does, for bfloat16 gradients, rounded to nearest even.
 */
corrnoise_status corrnoise_add_to_bf16(const corrnoise_mechanism *mechanism,
                                       uint16_t *const *gradients,
                                       const size_t *lengths,
                                       size_t count);

/**
 * Does what corrnoise_add_to_f32() does, for gradients in IEEE half precision, rounded to nearest even. If a value leaves the range of
 * f16, the step is complete all the same and the status is CORRNOISE_STATUS_OVERFLOW.
 */
corrnoise_status corrnoise_add_to_f16(const corrnoise_mechanism *mechanism,
                                      uint16_t *const *gradients,
                                      const size_t *lengths,
                                      size_t count);

/**
 * A fresh key from the operating system, kept nowhere else: a run with it cannot be resumed after this process ends.
 */
corrnoise_status corrnoise_key_from_os(corrnoise_key **out);

/**
 * A fresh key that is also written to a new file, which only the owner may read. Refuses to overwrite a file.
 */
corrnoise_status corrnoise_key_create_file(const char *file, corrnoise_key **out);

/**
 * The key in a file of 32 raw bytes or 64 hexadecimal digits. For a file made by corrnoise_key_create_file() the run id is "".
 */
corrnoise_status corrnoise_key_from_file(const char *file,
                                         const char *run_id,
                                         corrnoise_key **out);

/**
 * A key from 32 bytes of a good generator, which are yours to keep secret and to wipe. Every run of a plan under one key needs
 * a run id of its own: two runs with the same id make the same noise.
 */
corrnoise_status corrnoise_key_from_bytes(const uint8_t *bytes,
                                          const char *run_id,
                                          corrnoise_key **out);

/**
 * Puts the ledger of a key into `folder`, which is made if there is none. The ledger records which noise was made, so that a second
 * start is refused. A key from a file has one in the folder `<file>.ledger`, or in that which the environment variable CORRNOISE_LEDGER
 * names; a key made in memory has none without this call.
 */
corrnoise_status corrnoise_key_set_ledger(corrnoise_key *key,
                                          const char *folder);

/**
 * Wipes and frees a key.
 */
void corrnoise_key_free(corrnoise_key *key);

/**
 * Begins a run on the CPU, at step 0. Takes the key out of its handle. `options` may be NULL.
 */
corrnoise_status corrnoise_mechanism_new(const corrnoise_plan *plan,
                                         corrnoise_key *key,
                                         const corrnoise_shard *shard,
                                         const corrnoise_cpu_options *options,
                                         corrnoise_mechanism **out);

/**
 * Resumes a run from checkpoints on the CPU. The files are any that together hold the shard's coordinates, whichever engine wrote them
 * and however that run was sharded. `mode` is a corrnoise_resume_mode; `nonce` is read by CORRNOISE_RESUME_MODE_SHARED_INCARNATION
 * only, which needs 16 bytes that were never used before and are the same in all processes. Takes the key out of its handle.
 */
corrnoise_status corrnoise_mechanism_resume(const corrnoise_plan *plan,
                                            corrnoise_key *key,
                                            const corrnoise_shard *shard,
                                            const corrnoise_cpu_options *options,
                                            const char *const *files,
                                            size_t num_files,
                                            uint32_t mode,
                                            const uint8_t *nonce,
                                            corrnoise_mechanism **out);

/**
 * The step that the next call makes; the plan's number of steps when all were made.
 */
corrnoise_status corrnoise_mechanism_next_step(const corrnoise_mechanism *mechanism, uint64_t *step);

/**
 * Admits the next step of a plan that draws batches: you vouch that its gradients are summed over the plan's batch of that step,
 * which was drawn elsewhere from the run's key; corrnoise_mechanism_for_batch() looks at the batch. Without either call the step is
 * refused with CORRNOISE_STATUS_BATCH. A step that was made uses the admission up, a refused one does not. Plans that draw no batches
 * need none. This holds on the CPU and on devices.
 */
corrnoise_status corrnoise_mechanism_unchecked_batch(const corrnoise_mechanism *mechanism);

/**
 * Begins to make the noise of the next step in threads of its own, or on a CUDA stream of its own, and returns at once; the step then only
 * adds it. To be called after a step, before the next gradients are computed. The bits are the same with and without.
 *
 * Nothing is released or counted. A refused step leaves the noise that was made, a checkpoint in between is that of the state before the
 * step, and a second call, or one after the last step, does nothing. The first call takes memory for one more row and starts the threads:
 * if it cannot, nothing changes; if a thread fails, the mechanism is poisoned as by a step. On a CUDA device it does nothing unless
 * `prepare` of corrnoise_cuda_options is 1; its row and its stream are then there from the beginning.
 */
corrnoise_status corrnoise_mechanism_prepare(const corrnoise_mechanism *mechanism);

/**
 * The bytes of state that this mechanism holds.
 */
corrnoise_status corrnoise_mechanism_state_bytes(const corrnoise_mechanism *mechanism, uint64_t *bytes);

/**
 * A text for people that names the instructions and the threads in use, or the device and the rows that it makes at a time. 128 bytes are
 * enough for a CPU.
 */
corrnoise_status corrnoise_mechanism_describe(const corrnoise_mechanism *mechanism,
                                              char *buffer,
                                              size_t capacity);

/**
 * Writes a checkpoint; the file appears whole or not at all, for the owner alone. It holds past noise: it is as secret as the
 * key.
 */
corrnoise_status corrnoise_mechanism_save(const corrnoise_mechanism *mechanism,
                                          const char *file);

/**
 * Wipes the key and frees a mechanism.
 */
void corrnoise_mechanism_free(corrnoise_mechanism *mechanism);

/**
 * Reads a plan from its JSON file. One that is damaged, or has other noise than its certificate is for, is refused; whether its privacy
 * claim holds is what `corrnoise verify` checks.
 */
corrnoise_status corrnoise_plan_load(const char *file,
                                     corrnoise_plan **out);

/**
 * Reads a plan from the content of a plan file.
 */
corrnoise_status corrnoise_plan_from_json(const char *json, corrnoise_plan **out);

/**
 * The number of steps of the plan.
 */
corrnoise_status corrnoise_plan_num_steps(const corrnoise_plan *plan, uint64_t *num_steps);

/**
 * The standard deviation of the i.i.d. noise Z; the rows of C⁻¹Z are added to gradients.
 */
corrnoise_status corrnoise_plan_stddev(const corrnoise_plan *plan, double *stddev);

/**
 * The bytes of state that the plan's form keeps per parameter. An engine may keep a few rows more:
 * corrnoise_mechanism_state_bytes().
 */
corrnoise_status corrnoise_plan_state_bytes_per_param(const corrnoise_plan *plan, uint64_t *bytes);

/**
 * The fingerprint that names the plan: 64 hexadecimal digits and a NUL, so `capacity` must be 65 or more.
 */
corrnoise_status corrnoise_plan_fingerprint(const corrnoise_plan *plan, char *buffer, size_t capacity);

/**
 * Frees a plan; NULL is accepted.
 */
void corrnoise_plan_free(corrnoise_plan *plan);

/**
 * The sampler of a run. It reads the key and leaves it to a mechanism, so it is made before the mechanism takes the key. What is drawn
 * once for the whole run is drawn here, which takes a while for a large dataset.
 */
corrnoise_status corrnoise_sampler_new(const corrnoise_plan *plan,
                                       const corrnoise_key *key,
                                       corrnoise_sampler **out);

/**
 * The mean size of a batch, by which a sum over a batch is divided, whatever the batch's own size.
 */
corrnoise_status corrnoise_sampler_expected_batch_size(const corrnoise_sampler *sampler, double *size);

/**
 * The size that no batch exceeds: a length to which every batch can be padded.
 */
corrnoise_status corrnoise_sampler_max_batch_size(const corrnoise_sampler *sampler, uint64_t *size);

/**
 * Draws the batch of a step, to be freed by corrnoise_batch_free().
 */
corrnoise_status corrnoise_sampler_batch(const corrnoise_sampler *sampler,
                                         uint64_t step,
                                         corrnoise_batch **out);

/**
 * Wipes what the sampler knows of the key, and frees it; NULL is accepted.
 */
void corrnoise_sampler_free(corrnoise_sampler *sampler);

/**
 * The units of a batch: indices into the dataset, ascending, each at most once. They are the batch's own memory, valid until it is freed.
 */
corrnoise_status corrnoise_batch_indices(const corrnoise_batch *batch,
                                         const uint64_t **indices,
                                         size_t *count);

/**
 * Writes a batch to `length` places, so that every step has the same shape: the indices, then `padding`; and to `mask` 1 where there is a
 * unit and 0 where there is padding. The gradients of padded places are multiplied by 0. A batch of more units is refused.
 */
corrnoise_status corrnoise_batch_padded(const corrnoise_batch *batch,
                                        uint64_t padding,
                                        uint64_t *indices,
                                        uint8_t *mask,
                                        size_t length);

/**
 * Frees a batch; NULL is accepted.
 */
void corrnoise_batch_free(corrnoise_batch *batch);

/**
 * Admits the next step of a mechanism with its batch. One of another step, plan or run is refused with CORRNOISE_STATUS_BATCH. A step that was
 * made uses the admission up, a refused one does not.
 */
corrnoise_status corrnoise_mechanism_for_batch(const corrnoise_mechanism *mechanism,
                                               const corrnoise_batch *batch);

/**
 * The shard of a model given as one flat vector of `dim` values: it has one segment.
 *
 * A process that holds a part of a model takes that part of the whole with corrnoise_shard_select(). Two processes that each
 * call this for their own part would add the same noise to different coordinates.
 */
corrnoise_status corrnoise_shard_flat(uint64_t dim,
                                      corrnoise_shard **out);

/**
 * The shard of a model of `count` tensors with different names, one segment each. Names, lengths and order are part of what a checkpoint
 * is bound to. Each tensor starts at a multiple of 512 coordinates.
 */
corrnoise_status corrnoise_shard_tensors(const char *const *names,
                                         const uint64_t *lengths,
                                         size_t count,
                                         corrnoise_shard **out);

/**
 * The part of a shard inside ascending, disjoint ranges: one range for a process that owns a range of the coordinates, many for one
 * that owns a piece of every tensor.
 */
corrnoise_status corrnoise_shard_select(const corrnoise_shard *shard,
                                        const corrnoise_range *ranges,
                                        size_t count,
                                        corrnoise_shard **out);

/**
 * The same coordinates, held by other processes too, which add the same noise to the same gradients (replicas). The ledger of a key lets
 * processes share coordinates only if all of them say so, and all start before the second step.
 */
corrnoise_status corrnoise_shard_replica(const corrnoise_shard *shard,
                                         corrnoise_shard **out);

/**
 * The number of segments, which is the number of gradients that a step expects.
 */
corrnoise_status corrnoise_shard_num_segments(const corrnoise_shard *shard, size_t *count);

/**
 * The coordinates of a segment.
 */
corrnoise_status corrnoise_shard_segment(const corrnoise_shard *shard,
                                         size_t index,
                                         corrnoise_range *segment);

/**
 * Frees a shard; NULL is accepted.
 */
void corrnoise_shard_free(corrnoise_shard *shard);

/**
 * The message of the last call of this thread that failed: what it met and what it expected, in one line; empty if none failed.
 * The text is valid until the next call of this thread that fails.
 */
const char *corrnoise_last_error_message(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* CORRNOISE_H */
