"""Keys of other tools about training and its files that ask for what this version lacks or does in one way only."""

from __future__ import annotations

from outlive.run.names.known.base import Known, lacking

_NOT_BUILT = "is not built in this version"

TRAINING: tuple[Known, ...] = (
    lacking(
        f"this optimizer or option of one {_NOT_BUILT}",
        """
        optim_args optim_target_modules amsgrad use_galore galore_cos_threshold galore_gamma_proj
        galore_optim_per_parameter galore_proj_bits galore_proj_group_size galore_proj_quant galore_quantization
        galore_queue_size galore_target_modules galore_update_proj_gap galore_with_embedding sgd_momentum
        galore_target galore_rank galore_update_interval galore_scale galore_proj_type galore_layerwise use_apollo
        apollo_target apollo_rank apollo_update_interval apollo_scale apollo_proj apollo_proj_type apollo_scale_type
        apollo_layerwise apollo_scale_front use_badam badam_mode badam_start_block badam_switch_mode
        badam_switch_interval badam_update_ratio badam_mask_mode badam_verbose use_adam_mini use_muon dion_lr
        dion_momentum dion_rank_fraction dion_rank_multiple_of qgalore_rank qgalore_update_proj_gap qgalore_scale
        qgalore_proj_type qgalore_proj_quant qgalore_proj_bits qgalore_proj_group_size qgalore_cos_threshold
        qgalore_gamma_proj qgalore_queue_size adam_epsilon2 adam_beta3 grokfast_alpha grokfast_lamb optimizer_in_bwd
        params
        """,
        "use optimizer: {name: adamw, lr: …, betas: …, eps: …, weight_decay: …}",
    ),
    lacking(
        "all parameters share one learning rate",
        """
        embedding_lr embedding_lr_scale lr_groups loraplus_lr_ratio lorap_lr_ratio loraplus_lr_embedding
        """,
        "set optimizer.lr",
        same=(1e-6,),
    ),
    lacking(
        "a schedule is a linear warm-up, then cosine, linear or constant down to optimizer.min_lr_ratio",
        """
        lr_quadratic_warmup cosine_constant_lr_ratio lr_div_factor eta_min min_lr scheduler
        """,
        "set optimizer.warmup and optimizer.min_lr_ratio",
    ),
    lacking(
        "a whole step in one tool, one pass of one device in another",
        "batch_size",
        "set batch.sequences for the whole step, batch.micro_sequences for one pass",
        off=False,
    ),
    lacking("batch.micro_tokens: auto chooses the size of a pass", "auto_find_batch_size"),
    lacking(
        "the loss is divided by the targets of the whole step", "average_tokens_across_devices", same=(True,), off=False
    ),
    lacking(
        f"this loss {_NOT_BUILT}",
        """
        loss_type use_dft_loss use_asft_loss asft_alpha use_eaft_loss use_eaft eaft_alpha eaft_k
        label_smoothing_factor neftune_noise_alpha noisy_embedding_alpha liger_use_token_scaling loss loss_fn
        loss_fn_config dense_mixer diffusion kd_trainer kd_ce_alpha kd_alpha kd_temperature kd_beta kd_normalize_topk
        kd_online_server_base_url kd_online_topk kd_online_server kd_online_timeout kd_temperature_min ebft
        enable_dft_loss enable_channel_loss is_binary_loss_scale mrl_dims
        """,
        "write it as a function and name it in method.loss: module:function",
        same=("nll", "chunked_nll"),
    ),
    lacking(
        f"learning from preferences or rewards {_NOT_BUILT}",
        """
        beta rl_beta dpo_beta dpo_norm_loss dpo_generate_during_eval rpo_alpha dpo_use_weighting dpo_label_smoothing
        precompute_ref_log_probs dpo_use_liger_kernel dpo_loss_type dpo_loss_weights orpo_alpha simpo_gamma cpo_alpha
        kto_desirable_weight kto_undesirable_weight pref_beta pref_ftx pref_bco_weight pref_loss kto_chosen_weight
        kto_rejected_weight ppo_buffer_size ppo_epochs ppo_score_norm ppo_target ppo_whiten_rewards ref_model
        ref_model_adapters ref_model_quantization_bit reward_model reward_model_adapters reward_model_quantization_bit
        reward_model_type ld_alpha process_reward_model center_rewards_coefficient num_labels reward_funcs
        reward_weights num_generations max_completion_length scale_rewards mask_truncated_completions log_completions
        trl pass_rate_min pass_rate_max code_eval_scoring_mode code_eval_test_batch_size nemo_gym_enabled nemo_gym_dir
        num_iterations epsilon cast_lm_head_to_fp32 desirable_weight undesirable_weight discopop_tau entropy_coef
        entropy_coef_delta entropy_coef_max entropy_coef_min entropy_target epsilon_high f_alpha_divergence_coef
        f_divergence_type importance_sampling_level label_smoothing loss_weights max_tool_calling_iterations
        multi_objective_aggregation normalize_advantages off_policy_mask_threshold precompute_ref_batch_size
        ref_model_mixup_alpha ref_model_sync_steps reward_clip_range sapo_temperature_neg sapo_temperature_pos
        steps_per_generation sync_ref_model teacher_model_init_kwargs teacher_model_name_or_path top_entropy_quantile
        use_adaptive_entropy use_bias_correction_kl use_weighting vespo_k_neg vespo_k_pos vespo_lambda_neg
        vespo_lambda_pos disable_dropout cliprange cliprange_value gkd_logits_topk kl_coef kl_coeff lmbda
        missing_eos_penalty num_mini_batches num_ppo_epochs offload_teacher_model ref_adapters ref_model_revision
        ref_model_type reward_adapters reward_model_revision reward_template seq_kd sft_alpha teacher_adapters
        teacher_deepspeed teacher_model teacher_model_revision teacher_model_server teacher_model_type vf_coef
        whiten_rewards reward_functions reward_function_kwargs verl_config_overrides min_response_length
        penalise_no_eos policy_model ppo_batch_size ref_checkpointer ref_policy_checkpointer reward_and_value_model
        reward_checkpointer reward_penalty value_checkpointer teacher_checkpointer kd_loss kd_ratio forward_batch_size
        local_rollout_forward_batch_size response_length tool_call_parser
        """,
        "set method: {name: sft}; a loss of your own with columns of its own is method.loss",
    ),
    lacking(
        f"generating while training {_NOT_BUILT}",
        """
        use_vllm vllm vllm_mode vllm_device vllm_gpu_memory_utilization vllm_maxlen vllm_gpu_util vllm_enforce_eager
        vllm_max_lora_rank vllm_config sglang_maxlen sglang_mem_fraction sglang_tp_size sglang_config
        sglang_lora_backend fast_inference gpu_memory_utilization generate_samples num_generation_samples
        generation_prompt_ratio predict_with_generate do_predict generation_interval generation_steps
        vllm_enable_sleep_mode vllm_group_port vllm_importance_sampling_cap vllm_importance_sampling_clip_max
        vllm_importance_sampling_clip_min vllm_importance_sampling_correction vllm_importance_sampling_mode
        vllm_max_model_length vllm_model_impl vllm_server_base_url vllm_server_host vllm_server_port
        vllm_server_timeout vllm_structured_outputs_regex structured_outputs_regex vllm_tensor_parallel_size
        cache_implementation ds3_gather_for_generation generation_batch_size num_generations_eval
        num_sample_generations transformers_continuous_batching_config use_transformers_continuous_batching
        use_transformers_paged
        """,
    ),
    lacking(
        "the validation loss is measured before the first step, at each checkpoint and after each epoch",
        "eval_steps evals_per_epoch eval_interval",
        "set checkpoint.every to the steps between two",
    ),
    lacking(
        f"scoring while training {_NOT_BUILT}",
        """
        eval_on_each_dataset do_causal_lm_eval eval_causal_lm_metrics do_bench_eval bench_dataset bench_split
        benchmarks lm_eval_tasks eval_dataset_args eval_generation_config eval_limit eval_metric eval_use_evalscope
        extra_eval_args acc_strategy metrics_function include_alternative_mfu_metrics lm_eval_batch_size
        lm_eval_post_train lm_eval_model compute_accuracy task lang n_shot
        """,
        "remove it; the validation loss is measured where data.validation names rows",
    ),
    lacking("a lower validation loss is better", "greater_is_better"),
    lacking(
        f"more than one device {_NOT_BUILT}",
        """
        deepspeed deepspeed_config deepspeed_autotp_size zero_hpz_partition_size enable_fsdp auto_wrap_policy
        backward_prefetch forward_prefetch min_num_params shard_for_eval sharding_strategy state_dict_type
        sync_module_states transformer_layer_cls use_orig_params custom_sharded_layers memory_efficient_fsdp_wrap
        tensor_parallel_dim tensor_parallel_plan deepcompile zero_optimization zero_force_ds_cpu_optimizer fsdp
        fsdp_config fsdp_version fsdp_final_state_dict_type fsdp_transformer_layer_cls_to_wrap dp_shard_size
        dp_replicate_size sequence_parallel_degree sequence_parallel_size context_parallel_size heads_k_stride
        ring_attn_func tensor_parallel_size tensor_model_parallel_size pipeline_model_parallel_size
        expert_model_parallel_size expert_parallel_size expert_parallel_backend expert_parallel_num_nvl_bytes
        expert_parallel_num_rdma_bytes expert_parallel_token_capacity expert_parallel_fallback_on_unsupported
        sequence_parallel tensor_parallel parallelism_config accelerator_config dist_config use_distributed_optimizer
        moe_token_dispatcher_type num_processes use_ray ray_run_name ray_num_workers ray_init_kwargs
        resources_per_worker comms_config disable_allgather cp_size
        """,
        "remove it: one process trains on one device",
        same=(1,),
    ),
    lacking(
        "training runs on the GPU where there is one", "use_cpu", "hide the GPUs: CUDA_VISIBLE_DEVICES= outlive train …"
    ),
    lacking("training runs on the GPU where there is one", "device", "remove it", same=("cuda", "auto", "cuda:0")),
    lacking(
        f"moving weights or activations to another memory, or limiting it, {_NOT_BUILT}",
        """
        activation_offloading cpu_offload fsdp_cpu_offload ac_mode ac_option vit_gradient_checkpointing low_cpu_ram
        enable_activation_offloading layer_offloading ple_cpu_offload max_memory gpu_memory_limit
        selective_checkpointing recompute_granularity
        """,
        "set activation_checkpointing: true, or a smaller batch.micro_tokens",
    ),
    lacking(
        "products run in the format that precision names, sums of the loss in fp32",
        """
        fp8 fp8_config fp8_backend fp8_enable_fsdp_float8_all_gather upcast_layernorm upcast_lmhead_output fp32_norms
        fp32_norm_classes embeddings_skip_upcast torch_autocast
        """,
        "set precision to auto, bf16 or fp32",
        same=("auto",),
    ),
    lacking(
        "a run with one seed gives the same losses on the same machine",
        "full_determinism use_deterministic",
        same=(True,),
    ),
)

FILES: tuple[Known, ...] = (
    lacking(
        "checkpoints are counted in steps",
        """
        saves_per_epoch save_first_step early_stop_interval use_flash_ckpt create_checkpoint_symlink save_epoch
        dynamic_checkpoint save_every_epoch enable_jit_checkpoint
        """,
        "set checkpoint.every to the steps between two",
    ),
    lacking("every checkpoint can be gone on from", "save_only_model", "set checkpoint.keep to keep fewer"),
    lacking(
        "weights are always saved as safetensors",
        "save_safetensors save_final_model safe_serialization",
        same=(True,),
        off=False,
    ),
    lacking(
        "a run is gone on with by a word on the command line",
        "resume_from_checkpoint auto_resume_from_checkpoints resume_only_model try_resume_from_last_checkpoint",
        "outlive train RUN --resume",
    ),
    lacking(
        "the finished model lies in the run folder, as files that servers open",
        """
        export_dir max_shard_size peft_save_mode save_adapter_weights_only export_size export_device
        export_legacy_format export_quantization_bit export_quantization_dataset export_quantization_nsamples
        export_quantization_maxlen export_hf_on_finish merge_method output_dtype
        """,
        "set export.dtype and export.merged",
        same=(5, "cpu", 128, 1024),
    ),
    lacking(
        "the finished run is uploaded, to the repository that export.hub names; nothing is on the way",
        """
        push_to_hub hub_private_repo hub_strategy hub_always_push hub_revision hub_model_revision
        """,
        "remove it, and set export.hub to ORG/NAME; or upload any checkpoint: outlive upload FOLDER ORG/NAME",
        same=("every_save",),
    ),
    Known(
        (
            "hub_token",
            "hf_hub_token",
            "ms_hub_token",
            "om_hub_token",
            "token",
            "api_key",
            "comet_api_key",
            "comet_experiment_key",
            "swanlab_api_key",
            "swanlab_lark_secret",
            "swanlab_secret",
            "swanlab_token",
        ),
        "credentials come from the environment only, so that no file holds them",
        "remove it; for the Hugging Face hub set HF_TOKEN",
        secret=True,
    ),
    lacking(
        f"sending metrics to a tracker {_NOT_BUILT}; metrics.jsonl and report.html hold them",
        """
        use_wandb enable_wandb wandb_name wandb_run_id wandb_mode wandb_project enable_mlflow swanlab_email_language
        swanlab_exp_name swanlab_notification_method swanlab_receiver_email swanlab_sender_email swanlab_smtp_port
        swanlab_smtp_server swanlab_webhook_url log_completions_hub_repo log_multimodal log_unique_prompts
        num_completions_to_print log_examples wandb_entity wandb_watch wandb_log_model use_tensorboard
        enable_tensorboard tensorboard use_mlflow mlflow_tracking_uri mlflow_experiment_name mlflow_run_name
        hf_mlflow_log_artifacts use_comet comet_workspace comet_project_name comet_mode comet_online
        comet_experiment_config use_trackio trackio_project_name trackio_run_name trackio_space_id trackio_bucket_id
        trackio_static_space_id use_swanlab swanlab_project swanlab_experiment_name swanlab_run_name
        swanlab_description swanlab_mode swanlab_workspace swanlab_log_model swanlab_web_host swanlab_api_host
        swanlab_lark_webhook_url swanlab_logdir swanlab_log_completions swanlab_completion_log_interval
        swanlab_completion_max_buffer use_otel_metrics otel_metrics_host otel_metrics_port metric_logger
        monitor_config project
        """,
        same=("huggingface",),
    ),
    lacking(
        f"training on a rented service or in an outside environment {_NOT_BUILT}",
        """
        base_url project_id pipeline future_timeout save_name_prefix max_sample_tokens num_samples sample_temperature
        train_attn train_mlp train_unembed nemo_gym_auto_clone nemo_gym_auto_start nemo_gym_config_paths
        nemo_gym_datasets nemo_gym_head_port nemo_gym_max_turns nemo_gym_model_name nemo_gym_multi_turn
        nemo_gym_run_timeout nemo_gym_server_timeout nemo_gym_verify_timeout
        """,
    ),
    lacking(
        f"diffusion models of text {_NOT_BUILT}",
        """
        importance_weighting mask_token_id mask_token_str max_mask_ratio min_mask_ratio noise_schedule
        num_diffusion_steps
        """,
    ),
    lacking(
        f"profiling {_NOT_BUILT}",
        """
        profiler profiler_steps profiler_steps_start enable_torch_profiler profiler_output_dir profiler_wait_steps
        profiler_warmup_steps profiler_active_steps profiler_repeat profiler_record_shapes profiler_profile_memory
        profiler_with_stack profile_modules autotuning eigenvalue data_efficiency debug
        """,
    ),
    lacking(
        "a step whose loss or gradient is no number is skipped and counted; a high loss does not stop a run",
        "loss_watchdog_threshold loss_watchdog_patience",
        "set stop.nonfinite_steps",
    ),
    lacking("training is what outlive train does", "do_train", same=(True,), off=False),
    lacking(
        "these settings stand at the top level of a run file, under the same names, or in our sections",
        """
        training model_args data_args training_args trl_config lora_config bnb checkpointer
        """,
        "move its keys one level up",
    ),
)
