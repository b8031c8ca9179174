"""Keys of other tools that are not needed here: what they ask for happens anyway, or belongs to something else."""

from __future__ import annotations

from outlive.run.names.known.base import Known, not_needed

NOT_NEEDED: tuple[Known, ...] = (
    not_needed(
        "every step is recorded in metrics.jsonl and shown while training runs",
        """
        logging_steps dep_log_level logging_strategy logging_first_step logging_dir logging_nan_inf_filter log_level
        log_level_replica log_on_each_node disable_tqdm plot_loss print_param_status log_every_n_steps
        log_peak_memory_stats steps_per_print wall_clock_breakdown log_model_summary include_tokens_per_second
        include_tkps include_performance_metrics include_num_input_tokens_seen include_effective_tokens_per_second
        log_samples log_interval prediction_loss_only skip_memory_metrics
        """,
    ),
    not_needed(
        "rows are prepared once into a store that is keyed by their content, the tokenizer and the template",
        """
        packing_num_proc download_mode cached_val_dataset use_hf local_repo_path
        load_data_args preprocessing_batch_size overwrite_cache tokenized_path
        dataset_prepared_path cache_dir dataset_keep_in_memory load_from_cache_file lazy_tokenize
        data_shared_file_system num_dataset_shards_to_save dataset_map_batch_size sample_packing_mp_start_method
        sample_packing_eff_est sample_packing_bin_size sample_packing_group_size total_num_tokens
        total_supervised_tokens is_preprocess multipack_real_batches cached_dataset
        """,
    ),
    not_needed(
        "batches are read from memory-mapped stores, which needs no loader",
        """
        dataloader_num_workers dataloader_multiprocessing_context dataloader_main_process_only transform_num_workers
        dataloader_pin_memory dataloader_persistent_workers dataloader_prefetch_factor num_workers dataset_num_workers
        dataloader_type
        """,
    ),
    not_needed(
        "columns that no method declares are never read",
        "remove_unused_columns label_names length_column_name include_for_metrics",
    ),
    not_needed(
        "nothing is padded: documents lie end to end, each apart",
        """
        padding_free pad_to_sequence_len pad_to_multiple_of pad_token_id padding_side batch_flattening
        eval_sample_packing eval_packing eval_sequence_len dpo_padding_free pretrain_multipack_attn batching_strategy
        """,
    ),
    not_needed(
        "attention runs per document, with the kernel that the device has",
        """
        attn_implementation attn_impl flash_attn flash_attention sdp_attention xformers_attention flex_attention
        sage_attention eager_attention sdpa_varlen large_head_attention flash_attn_d512 flash_attn_cross_entropy
        flash_attn_fuse_mlp flash_attn_rms_norm flex_attn_compile_kwargs fused_attn_kernel gemma4_hybrid_attn_impl
        use_flash_attention flash_optimum
        """,
    ),
    not_needed(
        "the head and the loss are one module that never holds all logits at once",
        """
        use_liger_kernel enable_liger_kernel liger_kernel_config liger_cross_entropy liger_fused_linear_cross_entropy
        liger_rope liger_rms_norm liger_rms_norm_gated liger_layer_norm liger_swiglu liger_glu_activation
        liger_kernel_impl chunked_cross_entropy chunked_cross_entropy_num_chunks cut_cross_entropy use_cce
        dpo_use_logits_to_keep num_output_chunks
        """,
    ),
    not_needed(
        "it changes speed or memory only, and the results are right without it",
        """
        tf32 experts_impl empty_device_cache_steps activation_checkpointing_kwargs use_logits_to_keep torch_compile
        torch_compile_backend torch_compile_mode torch_compile_options compile use_kernels lora_mlp_kernel
        lora_qkv_kernel lora_o_kernel lora_embedding_kernel unsloth_tiled_mlp tiled_mlp tiled_mlp_num_shards
        tiled_mlp_use_original_mlp use_v1_kernels gc_steps gc_collect_steps torch_empty_cache_steps low_cpu_mem_usage
        use_reentrant_gc gradient_checkpointing_kwargs gradient_checkpointing_use_reentrant use_unsloth_gc lora_on_cpu
        experimental_skip_move_to_device experts_implementation moe_grouped_gemm apply_rope_fusion
        bias_activation_fusion overlap_param_gather overlap_grad_reduce use_scattermoe use_sonicmoe
        moe_grouped_backend expert_backend moe_dequant_chunk_size moe_bnb_fast enable_cpu_affinity fused foreach
        kernel_config dist_init_timeout prescale_gradients zero_allow_untested_optimizer aio bnb_4bit_quant_storage
        """,
    ),
    not_needed(
        "one process trains on one device, which it finds itself",
        """
        local_rank ddp_timeout ddp_backend ddp_bucket_cap_mb ddp_broadcast_buffers ddp_find_unused_parameters
        ddp_static_graph ddp master_addr master_port save_on_each_node nccl_default_timeout_minutes machine_rank
        main_process_ip main_process_port main_training_function num_machines rdzv_backend same_network gpu_ids
        compute_environment distributed_type downcast_bf16 tpu_env tpu_use_cluster tpu_use_sudo cuda_visible_devices
        ignore_bias_buffers
        """,
    ),
    not_needed(
        "the tokenizer is read from tokenizer.json and copied byte for byte",
        """
        use_fast_tokenizer tokenizer_use_fast tokenizer_type template_backend tokenizer_legacy
        tokenizer_save_jinja_files split_special_tokens
        """,
    ),
    not_needed(
        "the model's class is read from its config",
        """
        model_type peft_type auto_mapping inference_mode peft_version base_model_name_or_path model_class
        processor_type is_falcon_derived_model is_llama_derived_model is_mistral_derived_model is_qwen_derived_model
        lora_fan_in_fan_out task_type lora_task_type fan_in_fan_out
        """,
    ),
    not_needed(
        "unknown keys and bad rows are always refused; data.bad_rows drops such rows, counted",
        "strict check_model",
    ),
    not_needed(
        "the validation loss is measured before the first step, at each checkpoint and after each epoch",
        """
        eval_on_start eval_do_concat_batches eval_use_gather_object batch_eval_metrics bf16_full_eval fp16_full_eval
        """,
    ),
    not_needed("a run folder is never overwritten: where it exists, the run says so and stops", "overwrite_output_dir"),
    not_needed(
        "it has no effect in the tool that it comes from, either",
        """
        torchdistx_path gptq_groupsize gptq_model_v1 eval_table_size eval_max_new_tokens test_value s2_attention
        axolotl_config_path _comment llama4_linearized_experts world_size device_map
        restore_callback_states_from_checkpoint
        """,
    ),
    not_needed(
        "validation runs in passes as large as training's, and its loss is the same in any",
        "per_device_eval_batch_size eval_batch_size per_gpu_eval_batch_size eval_accumulation_steps eval_delay",
    ),
    not_needed(
        "it belongs to a finished model's chat, not to training: outlive generate takes such options",
        """
        do_sample temperature top_p top_k num_beams logprobs top_logprobs enable_kv_cache max_generated_tokens
        max_model_len max_new_tokens repetition_penalty length_penalty skip_special_tokens generation_max_length
        generation_num_beams generation_config eval_num_beams min_p generation_kwargs use_cache use_kv_cache
        infer_backend infer_dtype sample_backend offload_folder gradio_title gradio_share gradio_server_name
        gradio_server_port gradio_max_new_tokens gradio_temperature generation_max_new_tokens generation_temperature
        generation_top_p generation_top_k generation_do_sample
        """,
    ),
)
